"""`coreshot flower`: mistakes get one sentence before anything is started; only the owner can read a private key."""

import stat

import pytest
from cryptography import x509


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("status", "nowhere"), "holds no federation"),
        (("down", "nowhere"), "holds no federation"),
        (("run", "moons_quick", "--federation", "nowhere"), "holds no federation"),
        (("run", "no_such_preset"), "no_such_preset"),
        (("certs", "certs", "--sites", "a,a"), "each once"),
        (("certs", "certs", "--sites", "../a"), "a name has at most 64 letters"),
        (("site", "missing.csv", "--superlink", "127.0.0.1:1", "--client", "a", "--insecure"), "there is no such file"),
        (("site", "data.csv", "--superlink", "127.0.0.1:1", "--client", "a"), "give --ca and --key, or --insecure"),
        (
            ("site", "data.csv", "--superlink", "127.0.0.1:1", "--client", "a/b", "--insecure"),
            "a name has at most 64 letters",
        ),
        (
            ("site", "data.csv", "--superlink", "127.0.0.1:1", "--client", "a", "--insecure", "--study", "no.toml"),
            "there is no such file",
        ),
    ],
)
def test_mistakes_get_one_sentence(call, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a\n")
    code, _, errors = call("flower", *arguments)
    assert code == 2
    assert complaint in errors


def test_a_study_needs_the_names_of_its_sites(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("format = 1\n")
    code, _, errors = call("flower", "run", "study.toml")
    assert code == 2
    assert "give their names" in errors


def test_certificates_name_the_hosts_and_keys_are_secret(call, tmp_path):
    code, _, _ = call(
        "flower",
        "certs",
        tmp_path / "certs",
        "--hosts",
        "coordinator.example.org,192.0.2.7",
        "--sites",
        "site-1,site-2",
    )
    assert code == 0
    names = x509.load_pem_x509_certificate(
        (tmp_path / "certs" / "superlink.pem").read_bytes()
    ).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["coordinator.example.org", "localhost"]
    assert [str(address) for address in names.value.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    keys = sorted((tmp_path / "certs").rglob("*.key"))
    assert [key.name for key in keys] == ["site-1.key", "site-2.key", "superlink.key"]
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    assert len({key.read_bytes() for key in keys}) == 3
    code, _, errors = call("flower", "certs", tmp_path / "certs", "--sites", "site-3")
    assert code == 2
    assert "keys are never written over" in errors


def test_without_flower_it_says_what_to_install(call, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, errors = call("flower", "up", tmp_path)
    assert code == 2
    assert "install coreshot[flower]" in errors


def test_status_speaks_of_sites_by_name():
    from coreshot.cli.flower_status import status_lines

    facts = {
        "superlink": "127.0.0.1:8000",
        "is_running": True,
        "processes": {"superlink": True, "client-0": False},
        "nodes": [{"name": name, "status": "online"} for name in ("ward-3", "17224597136490060536", "9")],
        "runs": [{"run": "5", "status": "finished:completed"}],
    }
    assert list(status_lines(facts)) == [
        "SuperLink 127.0.0.1:8000: running",
        "client-0, on this machine: not running",
        "ward-3: online",
        "2 nodes online",
        "run 5: finished, completed",
    ]
