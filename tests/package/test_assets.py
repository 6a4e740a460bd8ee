"""The asset fixture itself: what it finds, what it skips, what it fails."""

import pytest


def test_finds_the_photograph(astronaut):
    assert astronaut.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("dist", "suffix"), [("no-such-dist", "x.png"), ("pytest", "no/such.png")])
def test_missing_skips_at_a_desk_and_fails_on_ci(asset, monkeypatch, dist, suffix):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=dist):
        asset(dist, suffix, "0" * 64)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"missing test asset: package {dist}"):
        asset(dist, suffix, "0" * 64)


def test_another_hash_fails_everywhere(asset, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.fail.Exception, match=r"sha256 0000\w* expected"):
        asset("pytest", "pytest/__init__.py", "0" * 64)
