"""What runs in the fresh processes; imports nothing heavy before the clock asks for it."""
