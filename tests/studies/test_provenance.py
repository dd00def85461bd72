"""Which files decide a study's numbers."""

from pathlib import Path

import pytest

import bayesattn
from bayesattn.studies import provenance
from bayesattn.studies.provenance import ROOT, digest, sources

STUDIES = Path(bayesattn.__file__).parent / "studies"


def names(file):
    return {path.relative_to(ROOT).as_posix() for path in sources(STUDIES / file)}


def test_a_study_depends_on_what_it_imports_directly_or_not():
    found = names("tunnel_hmm.py")
    assert {
        "studies/tunnel_hmm.py",
        "tunnels/hmm.py",
        "attention/posterior.py",
        "stats.py",
    } <= found
    assert {"training/loop.py", "models/layers.py"} <= found


def test_a_study_does_not_depend_on_other_studies_pages_or_commands():
    found = names("tunnel_hmm.py")
    assert (
        not {"studies/bam_size.py", "cli.py", "report/page.py", "report/templates/page.html"}
        & found
    )


def test_data_of_packages_counts():
    assert any(name.startswith("zoo/models/") for name in names("geometry_keys.py"))


STUDY = '''"""A study."""

@register
class Study:
    claim = "so it is"
    recipes = {"quick": 3}

    def measure(self):
        return 1  # one

    def judge(self, numbers):
        return numbers > 0

    def draw(self, numbers):
        plot(numbers)
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("A study", "This study", False),
        ("so it is", "so it may be", False),
        ("# one", "# a number", False),
        ("numbers > 0", "numbers > 1", False),
        ("plot(numbers)", "plot(-numbers)", False),
        ("return 1", "return 2", True),
        ('"quick": 3', '"quick": 4', True),
        ("@register\n", "", True),
    ],
)
def test_words_and_what_comes_after_measuring_do_not_count(old, new, counts, tmp_path):
    digests = set()
    for number, text in enumerate((STUDY, STUDY.replace(old, new))):
        file = tmp_path / str(number) / "study.py"
        file.parent.mkdir()
        file.write_text(text)
        digests.add(digest(file))
    assert len(digests) == (2 if counts else 1)


def test_what_other_classes_do_counts_whatever_it_is_called(tmp_path):
    digests = set()
    for number, text in enumerate(("numbers", "-numbers")):
        file = tmp_path / str(number) / "study.py"
        file.parent.mkdir()
        file.write_text(f"class Pen:\n    def draw(self, numbers):\n        return {text}\n")
        digests.add(digest(file))
    assert len(digests) == 2


def test_the_digest_follows_every_file_and_only_those(tmp_path, monkeypatch):
    package = tmp_path / "bayesattn"
    (package / "deep").mkdir(parents=True)
    files = {
        "study.py": "from bayesattn.deep import inner\nimport bayesattn.other\nimport os\n",
        "other.py": "def f():\n    from bayesattn.later import x\n",
        "later.py": "x = 1\n",
        "apart.py": "y = 1\n",
        "deep/__init__.py": "",
        "deep/inner.py": "",
        "deep/numbers.json": "[1]",
    }
    monkeypatch.setattr(provenance, "ROOT", package)

    def now(**changes):
        for cached in (digest, provenance._imported, provenance._decisive):
            cached.cache_clear()
        for name, text in {**files, **changes}.items():
            (package / name).write_text(text)
        return digest(package / "study.py")

    first = now()
    assert now() == first
    assert now(**{"apart.py": "y = 2\n"}) == first
    for name in files:
        if name != "apart.py":
            assert (
                now(**{name: "[2]" if name.endswith("json") else f"{files[name]}z = 3\n"}) != first
            )
    assert now() == first
