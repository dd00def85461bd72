"""Questions about made-up people, one document in many (`qa_facts`), or two of them (`qa_hops`).

They replace SQuAD and HotpotQA: nothing is downloaded, and no model has read the answers before.
"""

from random import Random

from bayesattn.corpora.ruler.draft import Draft, spread
from bayesattn.corpora.ruler.material import Material, different_names

TRADES = (
    "carpenter", "botanist", "printer", "surgeon", "weaver", "engineer", "painter", "sailor",
    "teacher", "baker", "composer", "lawyer", "geologist", "tailor", "farmer", "astronomer",
)  # fmt: skip


def ask_birthplace(material: Material, random: Random, depth: float, hops: int) -> Draft:
    """Where was a person born? With two hops: where was the teacher of a person born?"""
    names = different_names(random)
    own = Random(random.getrandbits(64))

    def document(person: str, city: str, teacher: str) -> str:
        year = own.randrange(1700, 1990)
        return (
            f"{person} was born in {city} in {year} and became a {own.choice(TRADES)}. {person} "
            f"learnt the trade from {teacher}, and later moved to {next(names)}."
        )

    people = [next(names) for _ in range(hops)]
    cities = [next(names) for _ in range(hops)]
    teachers = [*people[1:], next(names)]
    asked = [document(*one) for one in zip(people, cities, teachers, strict=True)]
    depths = [depth, *(random.random() for _ in asked[1:])]
    others: list[str] = []
    who = people[0] if hops == 1 else f"the person who taught {people[0]}"

    def write(units: int) -> str:
        while len(others) < units:
            others.append(document(next(names), next(names), next(names)))
        inserts = [(int(at * units), one) for at, one in zip(depths, asked, strict=True)]
        documents = spread(others[:units], inserts)
        body = "\n\n".join(f"Document {number}:\n{one}" for number, one in enumerate(documents, 1))
        return (
            "Answer the question based on the given documents. Only give me the answer and do not "
            f"output any other words.\n\nThe following are given documents.\n\n{body}\n\nAnswer "
            "the question based on the given documents. Only give me the answer and do not output "
            f"any other words.\n\nQuestion: In which city was {who} born? Answer:"
        )

    return Draft(write, (cities[-1],))
