import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.text.tokenizers.character import CharacterTokenizer, train_character_tokenizer
from fedlearn.text.tokens import DOCUMENT_END


@given(st.text())
def test_text_of_known_characters_survives(text: str) -> None:
    tokenizer = train_character_tokenizer(text, vocab_size=0)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == len(set(text)) + 2


def test_most_frequent_characters_come_first_and_ties_by_code_point() -> None:
    assert train_character_tokenizer("dcbaabb€c", vocab_size=0).characters == "bacd€"
    once_each = "".join(map(chr, range(0x400, 0x4FF)))
    assert train_character_tokenizer(once_each[::-1], vocab_size=0).characters == once_each


def test_rare_characters_become_unknown() -> None:
    tokenizer = train_character_tokenizer("aaabbc", vocab_size=4)
    tokens = tokenizer.encode("abcz\U0010ffff")
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [0, 1, 2, 2, 2]
    assert tokenizer.decode(tokens) == "ab\ufffd\ufffd\ufffd"


def test_specials_are_the_last_tokens_and_stop_decodes_to_nothing() -> None:
    tokenizer = CharacterTokenizer("xy")
    assert (tokenizer.unknown_token, tokenizer.stop_token, tokenizer.vocab_size) == (2, 3, 4)
    assert tokenizer.decode([0, 3, 1]) == "xy"


def test_vocabulary_never_exceeds_uint16() -> None:
    every_character = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    assert train_character_tokenizer(every_character, vocab_size=0).vocab_size == 65_535


def test_lone_surrogate_is_read_as_a_question_mark() -> None:
    tokenizer = train_character_tokenizer("?\udc80", vocab_size=0)
    assert tokenizer.characters == "?"
    assert tokenizer.encode("\udc80").tolist() == [0]


def test_repeated_character_is_refused() -> None:
    with pytest.raises(ValueError, match="each character once"):
        CharacterTokenizer("aa")


def test_foreign_token_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 to 3, got 4"):
        CharacterTokenizer("xy").decode([4])


def test_ends_of_documents_become_stop() -> None:
    tokenizer = CharacterTokenizer("aé")
    stop = [tokenizer.stop_token]
    expected = [*tokenizer.encode("aé"), *stop, *stop, *tokenizer.encode("é")]
    assert tokenizer.encode_marked(f"aé{DOCUMENT_END}{DOCUMENT_END}é").tolist() == expected
    assert tokenizer.stop_token not in tokenizer.encode(f"aé{DOCUMENT_END}")


def test_unknown_character_is_one_of_all_others() -> None:
    assert CharacterTokenizer("aé").bits_per_unknown == pytest.approx(math.log2(1_112_064 - 2))
