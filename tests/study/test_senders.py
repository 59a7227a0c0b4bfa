"""Who sent a file: signatures and rosters on the command line, and the same numbers under two names."""

import json
import stat

import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.fitted.model import fit
from coreshot.study.file import read_study
from coreshot.wire.messages import decode_message, pack, read_header, unpack
from coreshot.wire.signatures import check_sender, make_key, read_key, read_roster, roster_line, sign_message


@pytest.fixture
def sites(write_site):
    return [write_site(f"site-{seed}", seed=seed) for seed in range(2)]


@pytest.fixture
def signed(tmp_path, study_path, sites, call):
    """Keys, a roster and signed coresets of two sites, made as people make them."""
    for name, data in zip("ab", sites, strict=True):
        assert call("key", "new", tmp_path / f"{name}.key")[0] == 0
        out, key = tmp_path / f"{name}.coreset", tmp_path / f"{name}.key"
        assert call("distill", study_path, data, "--out", out, "--key", key)[0] == 0
    lines = [(tmp_path / f"{name}.key.pub").read_text() for name in "ab"]
    (tmp_path / "roster.toml").write_text("".join(lines))
    return tmp_path


def refused(call, folder, *arguments):
    code, said, errors = call("fit", *arguments, "--study", folder / "study.toml", "--out", folder / "model")
    assert (code, said) == (2, "")
    assert errors.count("\n") == 1
    assert not (folder / "model").exists()
    return errors


def with_roster(folder):
    return folder / "a.coreset", folder / "b.coreset", "--roster", folder / "roster.toml"


def rewritten(path, **header):
    old, arrays = unpack(path.read_bytes())
    path.write_bytes(pack({**old, **header}, arrays))


def test_a_signed_file_is_accepted_with_and_without_a_roster(signed, call):
    code, said, _ = call("fit", *with_roster(signed), "--study", signed / "study.toml", "--out", signed / "model")
    assert (code, "clients: a, b" in said) == (0, True)
    files = signed / "a.coreset", signed / "b.coreset"
    assert call("fit", *files, "--study", signed / "study.toml", "--out", signed / "other")[0] == 0
    one, other = (next((signed / name).glob("posterior-*")).read_bytes() for name in ("model", "other"))
    assert one == other


def test_a_private_key_is_for_its_owner_alone_and_shows_nowhere(tmp_path, call):
    code, said, _ = call("key", "new", tmp_path / "my site.key")
    assert code == 0
    assert stat.S_IMODE((tmp_path / "my site.key").stat().st_mode) == 0o600
    secret = (tmp_path / "my site.key").read_text().splitlines()[1]
    assert secret not in said
    assert (tmp_path / "my site.key.pub").read_text().strip() in said
    assert read_roster(tmp_path / "my site.key.pub") == {"my site": read_key(tmp_path / "my site.key").public}
    assert secret not in repr(read_key(tmp_path / "my site.key"))
    before = (tmp_path / "my site.key").read_bytes()
    assert call("key", "new", tmp_path / "my site.key")[0] == 2, "an old key is never replaced"
    assert (tmp_path / "my site.key").read_bytes() == before
    code, said, _ = call("key", "new", tmp_path / "other.key", "--client", "North", "--json")
    assert json.loads(said)["client"] == "North"


def test_who_is_not_in_the_roster_is_refused(signed, call):
    lines = (signed / "roster.toml").read_text().splitlines()
    (signed / "roster.toml").write_text(lines[0] + "\n")
    assert "client b: is not in the roster" in refused(call, signed, *with_roster(signed))


def test_an_unsigned_file_is_refused_with_a_roster(signed, sites, call):
    (signed / "b.coreset").unlink()
    assert call("distill", signed / "study.toml", sites[1], "--out", signed / "b.coreset")[0] == 0
    assert "client b: its file is not signed" in refused(call, signed, *with_roster(signed))


def test_a_file_in_another_name_is_refused(signed, sites, call):
    """Site a, with its own key, poses as b."""
    (signed / "b.coreset").unlink()
    arguments = "distill", signed / "study.toml", sites[0], "--out", signed / "b.coreset", "--key", signed / "a.key"
    assert call(*arguments)[0] == 0
    assert "client b: its file was not signed with the key" in refused(call, signed, *with_roster(signed))


@pytest.mark.parametrize("what", ["array", "round", "client", "releases", "signature", "type", "base64"])
def test_a_changed_file_is_refused(signed, call, what):
    path = signed / "b.coreset"
    header, arrays = unpack(path.read_bytes())
    if what == "array":
        name = sorted(arrays)[0]
        arrays[name] = arrays[name] + np.asarray(1, arrays[name].dtype)
    changes = {
        "round": {"round": 1},
        "client": {"client": "a"},
        "releases": {"releases": []},
        "signature": {"signature": read_header((signed / "a.coreset").read_bytes())["signature"]},
        "type": {"signature": {"a": 1}},
        "base64": {"signature": "not base64 é"},
    }
    path.write_bytes(pack({**header, **changes.get(what, {})}, arrays))
    roster = read_roster(signed / "roster.toml")
    with pytest.raises(CoreshotError, match="was not signed with the key that the roster has for it"):
        check_sender(path.read_bytes(), roster)
    files = [path] if what == "client" else [signed / "a.coreset", path]
    assert "was not signed with the key" in refused(call, signed, *files, "--roster", signed / "roster.toml")


def test_a_model_keeps_its_roster(signed, sites, call):
    """Who comes later is checked as well, also where --roster is left away; a new roster replaces the old one."""
    study, model = signed / "study.toml", signed / "model"
    arguments = "fit", signed / "a.coreset", "--study", study, "--out", model, "--roster", signed / "roster.toml"
    assert call(*arguments)[0] == 0
    fresh = signed / "c.csv"
    fresh.write_text("\n".join(sites[0].read_text().splitlines()[:-3]) + "\n")
    assert call("distill", study, fresh, "--out", signed / "c.coreset")[0] == 0
    code, _, errors = call("fit", "--add", signed / "c.coreset", model)
    assert (code, "client c: is not in the roster" in errors) == (2, True)
    assert call("fit", "--add", signed / "b.coreset", model)[0] == 0
    assert call("key", "new", signed / "c.key")[0] == 0
    roster = (signed / "roster.toml").read_text() + (signed / "c.key.pub").read_text()
    (signed / "roster.toml").write_text(roster)
    code, _, errors = call("fit", "--add", signed / "c.coreset", model, "--roster", signed / "roster.toml")
    assert (code, "client c: its file is not signed" in errors) == (2, True)
    (signed / "c.coreset").unlink()
    assert call("distill", study, fresh, "--out", signed / "c.coreset", "--key", signed / "c.key")[0] == 0
    assert call("fit", "--add", signed / "c.coreset", model, "--roster", signed / "roster.toml")[0] == 0
    assert call("forget", model, "--client", "b")[0] == 0


def test_the_same_numbers_under_two_names_are_refused(signed, call):
    """Also without a roster, from the command line, from Python, and where the copy comes late."""
    (signed / "copy.coreset").write_bytes((signed / "a.coreset").read_bytes())
    rewritten(signed / "copy.coreset", client="copy")
    errors = refused(call, signed, signed / "a.coreset", signed / "copy.coreset")
    assert "client copy: its file holds the same numbers as that of client a" in errors
    study = read_study(signed / "study.toml")
    files = [(signed / f"{name}.coreset").read_bytes() for name in ("a", "copy", "b")]
    with pytest.raises(CoreshotError, match="holds the same numbers"):
        fit(study, files)
    assert fit(study, files[1:])
    arguments = "--study", signed / "study.toml", "--out", signed / "model"
    assert call("fit", signed / "a.coreset", signed / "b.coreset", *arguments)[0] == 0
    code, _, errors = call("fit", "--add", signed / "copy.coreset", signed / "model")
    assert (code, "holds the same numbers" in errors) == (2, True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no client"),
        ("a = 3", "the key of client a is not"),
        ('a = "ed25519:AAAA"', "the key of client a is not"),
        ('a = "ssh-ed25519 AAAA"', "the key of client a is not"),
        ("[a]\nkey = 1", "the key of client a is not"),
        ("a = ", "not valid TOML"),
        ('"../a" = "ed25519:AAAA"', "a name has at most 64 letters"),
        ("\xff", "not valid TOML"),
    ],
)
def test_a_bad_roster_is_one_sentence(signed, call, text, complaint):
    (signed / "roster.toml").write_bytes(text.encode("latin-1"))
    assert complaint in refused(call, signed, *with_roster(signed))


def test_one_key_for_two_names_is_refused(tmp_path):
    key = make_key()
    (tmp_path / "roster.toml").write_text(roster_line("a", key) + roster_line("b", key))
    with pytest.raises(CoreshotError, match="clients a and b have the same key"):
        read_roster(tmp_path / "roster.toml")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", None])
def test_a_bad_key_is_one_sentence_before_any_work(tmp_path, study_path, sites, call, content):
    if content is not None:
        (tmp_path / "bad.key").write_bytes(content)
    arguments = "distill", study_path, sites[0], "--out", tmp_path / "a.coreset", "--key", tmp_path / "bad.key"
    code, said, errors = call(*arguments)
    assert (code, said, errors.count("\n")) == (2, "", 1)
    assert "bad.key: " in errors
    assert not (tmp_path / "a.coreset").exists()


def test_a_signature_changes_nothing_else_and_is_the_same_each_time(project):
    """Readers that know no signatures read the file as before; golden files can be signed."""
    data = (project / "tests" / "wire" / "golden" / "coreset-hard-1.safetensors").read_bytes()
    key = make_key()
    signed = sign_message(data, key)
    assert sign_message(data, key) == signed != data
    header, arrays = unpack(signed)
    del header["signature"]
    assert pack(header, arrays) == data
    assert decode_message(signed, study_hash="5" * 64, client="site-1").kind == "coreset"
    check_sender(signed, {"site-1": key.public})
    with pytest.raises(CoreshotError, match="was not signed with the key"):
        check_sender(signed, {"site-1": make_key().public})
    assert sign_message(signed, key) == signed, "signing anew replaces the signature"
