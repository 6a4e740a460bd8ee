"""Filters for pictures and their tensors: every public function of the modules is a kernel."""
