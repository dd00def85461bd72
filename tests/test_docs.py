"""What the documentation states about the code is true: constants, names, paths, navigation."""

import json
import pkgutil
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

import bayesattn
from bayesattn.attention import posterior
from bayesattn.claims import all_studies
from bayesattn.commands.main import COMMANDS, main, options
from bayesattn.commands.quick import HELP_FILE
from bayesattn.encodings import ENCODINGS
from bayesattn.models import SIZES
from bayesattn.priors import PRIORS, GeneralizedGaussian, generalized_gaussian
from bayesattn.probes import criteria, examination
from bayesattn.probes.bayes import behaviour
from bayesattn.tunnels import RRXOR, TUNNELS
from bayesattn.verdicts import LEVELS, LOOKS, WORDS, Kind

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "bayesattn"


def count_words(process):
    """How many words of its length a process can say."""
    words = torch.cartesian_prod(*[torch.arange(process.outcomes)] * process.length)
    return int(process.beliefs(words).isfinite().all(-1).all(-1).sum())


# page, what it says (one group), what the code says
STATED = [
    ("howto/kernel.md", r"`dense` up to (\d+) keys", posterior.SMALL),
    ("concepts.md", r"ε = (\S+)", generalized_gaussian.EPS),
    ("howto/model.md", r"\| `encoding` \| (.*?) \|", set(ENCODINGS)),
    ("howto/model.md", r"\| `prior` \| (.*?) \|", set(PRIORS)),
    ("howto/llm.md", r"^schema +(\d+)$", examination.SCHEMA),
    ("howto/llm.md", r"^p below (\S+) and more", criteria.ALPHA),
    ("howto/bayes.md", r"missed is below ([\d.]+);", behaviour.BAYESIAN),
    ("howto/bayes.md", r"\| missed is above ([\d.]+) \|", behaviour.NOTHING),
    ("howto/tunnel.md", r"`rrxor` has (\d+) different words", count_words(RRXOR())),
    ("howto/tunnel.md", r"\| tunnel \|.*?\n\|[-|]+\n(.*?)\n\n", set(TUNNELS)),
]


@pytest.mark.parametrize(
    ("page", "pattern", "value"), STATED, ids=lambda cell: cell if isinstance(cell, str) else ""
)
def test_what_a_page_states_is_what_the_code_says(page, pattern, value):
    text = (DOCS / page).read_text(encoding="utf-8")
    (said,) = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    if isinstance(value, set):
        missing = {name for name in value if f"`{name}`" not in said and f'"{name}"' not in said}
        assert missing == set()
    else:
        assert float(said) == value


def table(page, first):
    """Cells of the table whose first heading this is, row by row."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"\n| {first} |")[2]
    rows = text.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def number(text):
    """A number as people write it: 2.4 · 10¹⁸, −1e5, 1.14B, 4,096 GiB."""
    plain = (
        text.replace("−", "-").replace(",", "").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
    )
    plain = plain.replace(" · 10", "e")
    units = {"M": 1e6, "B": 1e9, "MiB": 2**20, "GiB": 2**30, "": 1}
    value, unit = re.fullmatch(r"(-?[\d.]+(?:e\d+)?) ?(\w*)", plain).groups()
    return float(value) * units[unit]


def test_the_log_priors_of_the_concepts_page():
    rows = table("concepts.md", "β")
    distances = torch.tensor([0.0, 1, 2, 10, 100, 1000])
    assert len(rows) == 6
    for shape, *cells, _ in rows:
        prior = GeneralizedGaussian(1)
        torch.nn.init.constant_(prior.theta_beta, number(shape))
        said = torch.tensor([number(cell) for cell in cells])
        torch.testing.assert_close(prior(distances)[0].detach(), said, rtol=0.02, atol=2e-4)


def test_the_costs_of_the_scaling_page_are_those_of_the_command(capsys):
    attention = {}
    for name, parameters, operations, memory, hours in table("scaling.md", "model"):
        assert main(["cost", name, "--speed", "200", "--json", "-"]) == 0
        found = json.loads(capsys.readouterr().out)
        attention[name] = found["attention"]
        costs = found["training"]
        assert costs["parameters"] == pytest.approx(number(parameters), rel=0.02)
        assert costs["operations in all"] == pytest.approx(number(operations), rel=0.02)
        assert costs["memory of a device, GiB"] * 2**30 == pytest.approx(number(memory), rel=0.05)
        assert costs["hours on one such device"] == pytest.approx(number(hours), rel=0.02)
    assert list(attention) == ["l6", "l12", "l24"]
    for length, *extra in table("scaling.md", "length"):
        ways = [way["extra"] for way in attention["l12"] if way["length"] == number(length)]
        for said, bytes_ in zip(extra, ways, strict=False):
            assert bytes_ == pytest.approx(number(said), rel=0.1)


def test_the_looks_of_the_verdicts_page():
    rows = [[float(cell.strip(" %")) for cell in row] for row in table("verdicts.md", "look")]
    assert [row[1] for row in rows] == list(LOOKS[0])
    assert [row[2] for row in rows] == list(LOOKS[1])
    assert [100 - row[3] for row in rows] == pytest.approx([100 * level for level in LEVELS])


def test_the_words_of_the_verdicts_page():
    said = {Kind(kind): (yes, no) for kind, _, yes, no in table("verdicts.md", "kind")}
    assert said == WORDS


def test_the_recipes_that_the_docs_name_exist():
    assert {"nano", "tiny", "mini", "l6", "l12", "l24"} <= set(SIZES)


def walks():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"```text\n(?!src/)(.*?)```", page, re.DOTALL)


def test_every_path_of_the_walks_exists():
    assert len(walks()) == 5
    paths = {
        path for walk in walks() for path in re.findall(r"(?<!\S)[a-z_]+(?:/\w+)*(?:\.py|/)", walk)
    }
    assert {"attention/posterior.py", "training/loop.py", "bits.py", "models/"} <= paths
    assert sorted(path for path in paths if not (PACKAGE / path).exists()) == []


API = [
    name
    for page in sorted(DOCS.glob("api/*.md"))
    for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.MULTILINE)
]
TOPICS = ("attention", "priors", "models", "tunnels", "training", "corpora")


@pytest.mark.parametrize("name", API)
def test_every_name_of_the_api_pages_exists(name):
    assert pkgutil.resolve_name(name) is not None


def test_every_public_name_is_on_one_api_page():
    public = set(bayesattn.HOMES.values()) - {"bayesattn.tunnels"}
    for topic in TOPICS:
        package = import_module(f"bayesattn.{topic}")
        public |= {f"bayesattn.{topic}.{name}" for name in package.__all__}
    assert len(API) == len(set(API))
    assert public - set(API) == set()


def pages():
    """Every page of the site."""
    notes = DOCS / "claims" / "notes"
    return {
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if notes not in path.parents
    }


def navigation(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(part)


SINGLE = {f"claims/{study.claim.id}.md" for study in all_studies()}
"""Pages of single claims, which the index of the claims lists."""


def test_the_navigation_has_every_page_once():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(navigation(settings["nav"])) == sorted(pages() - SINGLE)


def test_the_start_page_lists_every_page_but_the_single_claims():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", text))
    topics = {page for page in pages() if page.startswith("api/")}  # listed by api.md
    assert linked == pages() - SINGLE - topics - {"index.md"}


TEXTS = ["README.md", "LOG.md", "CONTRIBUTING.md", *(f"docs/{page}" for page in sorted(pages()))]


@pytest.mark.parametrize("page", TEXTS)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if target.startswith(("http:", "https:")):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{target}#{anchor}"


def anchors(text):
    """Of the headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_the_log_lists_each_of_its_findings():
    text = (ROOT / "LOG.md").read_text(encoding="utf-8")
    index, *_ = text.partition("\n## 20")
    sections = anchors("\n".join(re.findall(r"^## 20.*$", text, re.MULTILINE)))
    listed = re.findall(r"^- .*?\]\(#(.*?)\)", index, re.MULTILINE)
    assert sorted(listed) == sorted(sections)


def test_pages_use_the_words_of_the_field():
    """Initialisation, not beginning; the commands as they are called now."""
    words = r"\bbeginnings?\b|\bbayesattn (?:study|bench)\b|rate of the rest|what is left over"
    banned = re.compile(words, re.IGNORECASE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    texts = {
        "README.md": re.sub(r"<!-- ledger:begin.*ledger:end -->", "", readme, flags=re.DOTALL),
        "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    }
    texts["help.txt"] = HELP_FILE.read_text(encoding="utf-8")
    for path in (PACKAGE / "report" / "templates").iterdir():
        texts[path.name] = path.read_text(encoding="utf-8")
    for page in pages():
        if not page.startswith("claims/"):  # generated from what was recorded
            texts[page] = (DOCS / page).read_text(encoding="utf-8")
    found = {name: banned.findall(text) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


def typed_commands():
    """Lines that a reader may type, from README and pages, each once."""
    lines = {}
    for page in ["../README.md", *sorted(pages())]:
        text = (DOCS / page).read_text(encoding="utf-8")
        typed = r"^    bayesattn (.*)$|`bayesattn (.*?)`|^bayesattn (.*?)   |-m bayesattn (.*)$"
        for line in re.findall(typed, text, re.MULTILINE):
            lines.setdefault("".join(line).partition(" #")[0].strip(), page)
    for line, page in lines.items():
        if "--import" in line:  # of a file that the reader writes: tests/test_plugins.py runs such
            continue
        yield pytest.param(line, id=f"{page}: {line}"[:80])


@pytest.mark.parametrize("line", list(typed_commands()))
def test_every_command_of_the_docs_can_be_typed(line):
    """With its options: it is parsed, not run. A line in a sentence may name a command only."""
    words = shlex.split(line)
    if words[0] == "COMMAND":
        return
    depth = 1 if words[0] in COMMANDS else 2
    name, rest = " ".join(words[:depth]), words[depth:]
    if not rest and (name in COMMANDS or any(one.startswith(f"{name} ") for one in COMMANDS)):
        return
    if "--help" in rest:
        with pytest.raises(SystemExit, match="0"):
            options(name, rest)
    else:
        assert options(name, [word for word in rest if word not in ("…", "...")])
