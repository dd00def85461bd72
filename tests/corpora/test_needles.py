import re
from fractions import Fraction

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from bayesattn.corpora import CorpusError, NeedleMaker, encode, load_tokenizer
from bayesattn.corpora.sentences import FILLER, KINDS, VALUES, WORDS, wording
from tests.corpora.oracles import pieces_of, prompt

TOKENIZERS = {name: load_tokenizer(name) for name in ("bytes", "words")}
WORDY = TOKENIZERS["words"]
PASSKEY = NeedleMaker(WORDY)
UNIT = len(encode(WORDY, [FILLER])[0])
HAYSTACK = torch.tensor(
    pieces_of(WORDY, *[f"Thing {count} has a name. It is long\nand odd. " for count in range(90)])
)


def merging_digits(texts, vocabulary):
    """A tokenizer like GPT-2's, which has tokens for some numbers of several digits."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<bos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>")


def marking_words():
    """A tokenizer like Llama's, which begins every text with the mark of a space."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), digits])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<bos>"], initial_alphabet=[*"0123456789"]
    )
    pieces = [FILLER, *(vars(wording("passkey"))[name] for name in ("head", "needle", "question"))]
    tokenizer.train_from_iterator(pieces, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>")


def make(tokenizer, kind, values="numbers"):
    haystack = HAYSTACK if kind == "essay" else None
    return NeedleMaker(tokenizer, kind, values=values, haystack=haystack)


def number_in(tokens, tokenizer=WORDY):
    return tokenizer.decode(tokens).strip()


@pytest.mark.parametrize("name", [*TOKENIZERS, "marks"])
@pytest.mark.parametrize("length", [700, 1000, 2048])
def test_passkey_prompts_are_the_authors_word_for_word(name, length):
    tokenizer, samples = marking_words() if name == "marks" else TOKENIZERS[name], 7
    prompts = NeedleMaker(tokenizer).prompts(length, samples=samples, seed=5)
    fixed = len(prompt(tokenizer, "passkey", "numbers", [0, 0], [{"value": 12345}]))
    (filler,) = encode(tokenizer, [FILLER])
    garbage = (length - fixed) // len(filler)
    assert prompts.length == fixed + garbage * len(filler) <= length
    assert length - prompts.length < len(filler)
    for row in range(samples):
        key = number_in(prompts.answers[row], tokenizer)
        assert re.fullmatch("[1-9][0-9]{4}", key)
        place = int(Fraction(row * garbage, samples - 1))  # linspace, truncated
        assert prompts.places[row] == place
        expected = prompt(
            tokenizer, "passkey", "numbers", [place, garbage - place], [{"value": key}]
        )
        assert prompts.tokens[row].tolist() == expected
        assert prompts.answers[row].tolist() == encode(tokenizer, [f" {key}"])[0]


def test_the_text_of_a_prompt():
    tokens = PASSKEY.prompts(PASSKEY.shortest + 2 * UNIT, [0.5], samples=1)
    key = number_in(tokens.answers[0])
    assert WORDY.decode(tokens.tokens[0]) == (
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
        "them. I will quiz you about the important information there."
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
        f"The pass key is {key}. Remember it. {key} is the pass key."
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
        "What is the pass key? The pass key is"
    )


@pytest.mark.parametrize("digits", [1, 2, 9])
def test_keys_have_as_many_digits_as_asked_for(digits):
    prompts = NeedleMaker(WORDY, digits=digits).prompts(400, samples=300)
    keys = [number_in(row) for row in prompts.answers]
    assert all(re.fullmatch(f"[1-9][0-9]{{{digits - 1}}}", key) for key in keys)
    for position in range(digits):  # every digit happens everywhere
        assert {key[position] for key in keys} == set(
            "123456789" if position == 0 else "0123456789"
        )
    assert len(set(keys)) > {1: 8, 2: 80, 9: 299}[digits]


def test_the_space_before_a_number_is_not_scored():
    prompts = PASSKEY.prompts(200)
    assert prompts.scored.tolist() == [False] + [True] * 5
    assert NeedleMaker(WORDY, "noise", values="words").prompts(200).scored.tolist() == [True]


def test_depths_are_those_asked_for():
    prompts = PASSKEY.prompts(PASSKEY.shortest + 3 * UNIT, [0, 1 / 3, 0.5, 1], samples=2)
    assert prompts.places.tolist() == [0, 0, 1, 1, 1, 1, 3, 3]
    assert prompts.depth.tolist() == [0, 0, 1 / 3, 1 / 3, 0.5, 0.5, 1, 1]
    assert PASSKEY.prompts(300, samples=1).places.tolist() == [0]


def test_seed_and_length_decide_everything():
    first = PASSKEY.prompts(300, samples=20, seed=1)
    PASSKEY.prompts(400, samples=3)
    again = NeedleMaker(load_tokenizer("words")).prompts(300, samples=20, seed=1)
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.answers, again.answers)
    for other in (
        PASSKEY.prompts(300, samples=20, seed=2),
        PASSKEY.prompts(299, samples=20, seed=1),
    ):
        assert not torch.equal(first.answers, other.answers)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", ["passkey", "noise", "multikey", "multivalue"])
def test_prompts_read_as_their_text(kind, name, values):
    """Read back from the decoded text what stands where, and write it again in the slow way."""
    tokenizer = TOKENIZERS[name]
    maker = make(tokenizer, kind, values)
    shortest, samples = maker.shortest, 12
    prompts = maker.prompts(shortest + 5 * maker.unit + 3, samples=samples)
    assert prompts.length == shortest + 5 * maker.unit
    words = wording(kind, values)
    hidden = re.escape(words.needle).replace(r"\{value\}", "([a-z0-9]+)", 1)
    hidden = hidden.replace(r"\{key\}", "([a-z]+)").replace(r"\{value\}", "[a-z0-9]+")
    for row in range(samples):
        text = tokenizer.decode(prompts.tokens[row])
        matches = list(re.finditer(hidden, text))
        assert len(matches) == maker.needles == (4 if kind.startswith("multi") else 1)
        found = [match.groups() for match in matches]
        fields = [
            dict(zip(["key", "value"] if "{key}" in words.needle else ["value"], f, strict=True))
            for f in found
        ]
        ends = [len(words.head), *(match.end() for match in matches)]
        begins = [*(match.start() for match in matches), text.index(words.question[:8], ends[-1])]
        before = [text[end:begin].count(FILLER) for end, begin in zip(ends, begins, strict=True)]
        asked = re.search(r"mentioned", text) and re.search(r"for ([a-z]+) mentioned", text)[1]
        expected = prompt(tokenizer, kind, values, before, fields, asked)
        assert prompts.tokens[row].tolist() == expected
        keys = [field.get("key") for field in fields]
        answer = [field["value"] for field in fields if field.get("key") == asked]
        if kind == "multikey":
            assert len(set(keys)) == 4 and len(answer) == 1
        if kind == "multivalue":
            assert len(set(keys)) == 1 and len(answer) == 4
        assert tokenizer.decode(prompts.answers[row]) == " " + ", ".join(answer)
        place = int(Fraction(5 * row, samples - 1))
        assert prompts.places[row] == place
        passed = [sum(before[: count + 1]) for count in range(maker.needles)]
        if kind == "multikey":
            assert passed[keys.index(asked)] == place
        else:
            assert place in passed


def test_words_are_drawn_from_all_words():
    maker = NeedleMaker(WORDY, "noise", values="words")
    prompts = maker.prompts(300, samples=1500)
    assert {number_in(row) for row in prompts.answers} == set(WORDS)


def test_essays_are_running_text_cut_nowhere():
    maker = NeedleMaker(WORDY, "essay", haystack=HAYSTACK)
    assert maker.unit == 1
    length = maker.shortest + 200
    prompts = maker.prompts(length, samples=40)
    assert prompts.length == length
    words, whole = wording("essay"), WORDY.decode(HAYSTACK)
    head = len(encode(WORDY, [words.head])[0])
    sentences = [0, *(match.end() for match in re.finditer(r"[.\n]", whole))]
    beginnings = set()
    for row in range(40):
        text = WORDY.decode(prompts.tokens[row])
        needle = re.search(r"One of the special magic numbers for (\w+) is: (\d+)\.", text)
        question = words.question.format(key=needle[1])
        assert text.startswith(words.head) and text.endswith(question)
        before, after = text[len(words.head) : needle.start()], text[needle.end() : -len(question)]
        assert before + after in whole
        assert not before or before.endswith((".", "\n"))
        sentence = torch.tensor(encode(WORDY, [needle[0]])[0])
        (found,) = (prompts.tokens[row].unfold(0, len(sentence), 1) == sentence).all(1).nonzero()
        assert found == head + prompts.places[row]
        # no further from the place asked for than a sentence is long
        assert 0 <= int(200 * prompts.depth[row]) - prompts.places[row] < 24
        assert WORDY.decode(prompts.answers[row]) == f" {needle[2]}"
        beginnings.add((before + after)[:30])
        assert beginnings <= {whole[end : end + 30] for end in sentences}
    assert len(beginnings) > 20


def test_a_short_haystack_is_repeated_and_documents_have_no_marks():
    text = encode(WORDY, ["Once. Twice. "])[0]
    haystack = torch.tensor([WORDY.bos_token_id, *text])
    maker = NeedleMaker(WORDY, "essay", haystack=haystack)
    (tokens,) = maker.prompts(maker.shortest + 3 * len(text), [1.0], samples=1).tokens
    assert WORDY.bos_token_id not in tokens
    assert WORDY.decode(tokens).count("Twice") >= 2


@pytest.mark.parametrize("kind", ["multikey", "multivalue"])
def test_several_needles_may_hide_in_running_text(kind):
    maker = NeedleMaker(WORDY, kind, haystack=HAYSTACK)
    (tokens,) = maker.prompts(400, [0.5], samples=1).tokens
    assert len(tokens) == 400
    assert WORDY.decode(tokens).count("One of the special magic numbers") == 4


@pytest.mark.parametrize("kind", ["passkey", "noise", "multikey", "multivalue"])
def test_tokenizers_that_merge_digits_get_numbers_of_equal_length(kind):
    texts = [f" {number * 7919 % 100_000}" for number in range(3000)]
    tokenizer = merging_digits(texts, 300)
    numbers = encode(tokenizer, [f" {number}" for number in range(10_000, 11_000)])
    assert len({len(tokens) for tokens in numbers}) > 1
    maker = NeedleMaker(tokenizer, kind)
    prompts = maker.prompts(maker.shortest + 10, samples=30)
    for row in range(30):
        values = tokenizer.decode(prompts.answers[row]).strip().split(", ")
        assert all(re.fullmatch("[1-9][0-9]{4}", value) for value in values)
        assert encode(tokenizer, [" " + ", ".join(values)])[0] == prompts.answers[row].tolist()
        assert all(value in tokenizer.decode(prompts.tokens[row]) for value in values)
    assert len({tuple(row) for row in prompts.answers.tolist()}) > 25


def test_a_single_pair_that_is_merged_is_noticed(generator):
    tokenizer = merging_digits(["23"], 258)
    assert [len(tokens) for tokens in encode(tokenizer, ["22", "23"])] == [2, 1]
    maker = NeedleMaker(tokenizer)
    tokens, used, _ = maker.training(400, maker.shortest + maker.answer_length, generator)
    for row, end in zip(tokens, used.tolist(), strict=True):
        answer = tokenizer.decode(row[:end])[-6:]
        assert encode(tokenizer, [answer])[0] == row[end - maker.answer_length : end].tolist()


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_training_prompts_are_prompts_with_answers(kind, name, generator):
    tokenizer = TOKENIZERS[name]
    haystack = torch.tensor(encode(tokenizer, ["It is so. "])[0] * 40) if kind == "essay" else None
    maker = NeedleMaker(tokenizer, kind, haystack=haystack)
    shortest, most = maker.shortest + maker.answer_length, 4
    length = shortest + most * maker.unit + maker.unit - 1
    tokens, used, _ = maker.training(64, length, generator)
    assert tokens.shape == (64, length) and tokens.dtype == torch.int64
    assert ((used - shortest) % maker.unit == 0).all()
    fillers = (used - shortest) // maker.unit
    assert set(fillers.tolist()) == set(range((length - shortest) // maker.unit + 1))
    words, keys = wording(kind), set()
    for row in range(64):
        assert not tokens[row, used[row] :].any()
        text = tokenizer.decode(tokens[row, : used[row]])
        assert text.startswith(words.head)
        tail = re.search(r"What (is|are all) the .* (is|are)( \d{5}(?:, \d{5})*)$", text)
        needle = (
            re.escape(words.needle)
            .replace(r"\{value\}", "([0-9]{5})")
            .replace(r"\{key\}", "([a-z]+)")
        )
        found = re.findall(needle, text)
        assert len(found) == maker.needles
        if kind == "passkey":
            assert found[0] == (tail[3].strip(),) * 2
        else:
            key = re.search(r"for ([a-z]+) mentioned", text)[1]
            assert tail[3] == " " + ", ".join(value for own, value in found if own == key)
        keys.add(tail[3])
        if kind != "essay":
            assert text.count(FILLER) == fillers[row]
    assert len(keys) > 60


def test_training_prompts_stand_everywhere(generator):
    tokens, used, _ = PASSKEY.training(4000, PASSKEY.shortest + 6 + 2 * UNIT, generator)
    head = encode(WORDY, [wording("passkey").head])[0]
    needle = encode(WORDY, ["The pass key is"])[0]
    counts = {}
    windows = tokens[:, len(head) :].unfold(1, len(needle), 1)
    first = (windows == torch.tensor(needle)).all(-1).int().argmax(1)
    for row in zip(used.tolist(), (first // UNIT).tolist(), strict=True):
        counts[row] = counts.get(row, 0) + 1
    lengths = [PASSKEY.shortest + 6 + count * UNIT for count in range(3)]
    assert set(counts) == {(lengths[n], p) for n in range(3) for p in range(n + 1)}
    for (length, _), count in counts.items():
        expected = 4000 / 3 / (lengths.index(length) + 1)
        assert abs(count - expected) < 5 * expected**0.5


@pytest.mark.parametrize("kind", ["passkey", "noise", "multikey"])
def test_what_a_needle_hides_is_given_once(kind, generator):
    maker = NeedleMaker(load_tokenizer("bytes"), kind)  # a token is a character
    length = maker.shortest + maker.answer_length + 2 * maker.unit
    tokens, used, given = maker.training(32, length, generator)
    field = re.escape(wording(kind).needle)
    field = field.replace(r"\{value\}", "([0-9]{5})", 1).replace(r"\{value\}", r"\1")
    field = field.replace(r"\{key\}", "([a-z]+)")
    for row, end, own in zip(tokens, used.tolist(), given, strict=True):
        text = bytes(row[:end].tolist()).decode()
        found = list(re.finditer(field, text))
        assert len(found) == maker.needles
        spans = [match.span(group) for match in found for group in range(1, match.re.groups + 1)]
        places = {place for begin, stop in spans for place in range(begin, stop)}
        assert set(own.nonzero()[:, 0].tolist()) == places


def test_training_is_a_function_of_the_generator():
    drawn = [PASSKEY.training(8, 128, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_no_prompts_at_all(generator):
    tokens, used, _ = PASSKEY.training(0, 128, generator)
    assert tokens.shape == (0, 128) and used.shape == (0,)


def test_lengths_shorter_than_the_needle(generator):
    least = PASSKEY.shortest
    assert PASSKEY.prompts(least).length == least
    with pytest.raises(CorpusError, match=f"at least {least} tokens .* not fit into {least - 1}:"):
        PASSKEY.prompts(least - 1)
    whole = least + PASSKEY.answer_length
    assert PASSKEY.training(2, whole, generator)[1].tolist() == [whole, whole]
    with pytest.raises(CorpusError, match=f"with its answer has at least {whole} .* {whole - 1}:"):
        PASSKEY.training(2, whole - 1, generator)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "passkeys"}, "unknown needle 'passkeys'; choose one of passkey, noise"),
        ({"values": "letters"}, "values must be numbers or words"),
        ({"digits": 0}, "digits must be 1 to 100, not 0"),
        ({"kind": "essay"}, "needs a haystack"),
        ({"kind": "essay", "haystack": torch.tensor([WORDY.bos_token_id])}, "haystack is empty"),
        ({"kind": "noise", "haystack": HAYSTACK}, "brings its own haystack"),
    ],
)
def test_bad_makers(options, sentence):
    with pytest.raises(CorpusError, match=sentence):
        NeedleMaker(WORDY, **options)


@pytest.mark.parametrize("depths", [[], [0.5, 1.5], [-0.1], [float("nan")]])
def test_bad_depths(depths):
    with pytest.raises(CorpusError, match="depths must be numbers from 0 to 1"):
        PASSKEY.prompts(128, depths)


def test_bad_samples():
    with pytest.raises(CorpusError, match="samples must be 1 or more"):
        PASSKEY.prompts(128, samples=0)


@pytest.mark.parametrize(("length", "samples"), [(2**31, 1), (2**20, 257)])
def test_more_tokens_than_memory_holds_are_refused_before_one_is_made(length, samples):
    maker = NeedleMaker(load_tokenizer("words"))
    with pytest.raises(CorpusError, match="are more than the 268,435,456 tokens that are made at"):
        maker.prompts(length, [0.5], samples)
