"""An oracle that reads the prompt as a careful person would, and nothing else."""

import re
from collections import Counter


def solve(kind, prompt):
    """The continuation of a prompt."""
    asked = prompt[prompt.rindex("\n") :]
    if kind.startswith("niah"):
        hidden = re.findall(r"One of the special magic \w+ for (\S+) is: (\S+?)\.(?=\s)", prompt)
        (about,) = re.findall(r" for (.+?) mentioned in the provided text\?", asked)
        keys = re.split(r", and |, ", about)
        return ", ".join(value for key, value in hidden if key in keys)
    if kind == "vt":
        (number,) = re.findall(r"assigned the value (\d+) in", asked)
        links = re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", prompt, re.MULTILINE)
        known = [number]
        for new, old in links:
            if old in known:
                known.append(new)
        return " ".join(known[1:])
    if kind == "cwe":
        listed = re.findall(r"\d+\. (\S+)", prompt)
        return " ".join(word for word, _ in Counter(listed).most_common(10))
    if kind == "fwe":
        coded = [word for word in prompt.split("\n")[1].split() if word != "..."]
        return " ".join(word for word, _ in Counter(coded).most_common(3))
    born = dict(re.findall(r"(\w+) was born in (\w+)", prompt))
    taught = dict(re.findall(r"(\w+) learnt the trade from (\w+),", prompt))
    if kind == "qa_facts":
        (who,) = re.findall(r"In which city was (\w+) born", asked)
        return born[who]
    (who,) = re.findall(r"the person who taught (\w+) born", asked)
    return born[taught[who]]


def kind_of(prompt):
    """Which of `solve`'s ways a prompt needs."""
    for sign, kind in (
        ("VAR ", "vt"),
        ("numbered list of words", "cwe"),
        ("coded text", "fwe"),
        ("the person who taught", "qa_hops"),
        ("In which city", "qa_facts"),
    ):
        if sign in prompt:
            return kind
    return "niah"
