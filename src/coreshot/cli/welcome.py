"""What `coreshot` says without arguments: who types what, in three groups."""

from __future__ import annotations

from collections.abc import Iterator

WHO: dict[str, list[tuple[str, str]]] = {
    "I hold data": [
        ("coreshot study check study.toml", "what will be computed from my records, and what is promised"),
        ("coreshot distill study.toml DATA --out my.coreset", "one file; nothing is sent"),
        ("coreshot inspect my.coreset --study study.toml --html my.html", "what the file tells, before it leaves"),
        ("coreshot budget show", "what I have released so far"),
    ],
    "I coordinate a study": [
        ("coreshot study new study.toml --from DATA --target COLUMN", "a study, from the columns of a table"),
        ("coreshot fit *.coreset --study study.toml --out model", "the model; --add for a late file"),
        ("coreshot evaluate model DATA --html model.html", "how good it is, on one page"),
        ("coreshot predict model DATA --out predictions.csv", "predictions, with their uncertainty"),
        ("coreshot forget model --client NAME", "as if it had never sent a file"),
        ("coreshot flower up FOLDER", "the same over a network"),
    ],
    "I do research": [
        ("coreshot list", "the presets: one for each figure"),
        ("coreshot run moons", "results, figures and a page; --plan says what it costs"),
        ("coreshot compare digits_quick", "learners and baselines at the same bytes"),
        ("coreshot audit private_digits --method own_3", "an attack on a private method"),
    ],
}
FIRST = [
    ("coreshot demo", "the whole story in about a minute"),
    ("coreshot example heart --to heart", "a folder to try the commands in"),
    ("coreshot COMMAND --help", "all options of a command, and an example"),
    ("coreshot --install-completion", "let the shell complete commands"),
]


def who_types_what() -> Iterator[str]:
    yield "coreshot: one model from data that stay where they are. Each site sends one small file."
    for who, lines in [("To begin", FIRST), *WHO.items()]:
        yield ""
        yield who
        width = max(len(command) for command, _ in lines)
        yield from (f"  {command:{width}}  {words}" for command, words in lines)
