import pytest

from fedlearn.text.prose import prose_in


def test_paragraph_is_a_line_without_marks_of_emphasis() -> None:
    text = "The *value* of a name  \n   is looked up.  It\u2019s \u201cbound\u201d in the ``scope`` of a block.\n"
    assert list(prose_in(text)) == ['The value of a name is looked up. It\'s "bound" in the scope of a block.']


def test_items_of_a_list_are_paragraphs_of_their_own() -> None:
    text = "* A list is a sequence of some objects.\n* Tuples are sequences which do not\n  change, see above.\n"
    assert list(prose_in(text)) == [
        "A list is a sequence of some objects.",
        "Tuples are sequences which do not change, see above.",
    ]


def test_multiplication_sign_or_hyphen_within_a_sentence_begins_no_item() -> None:
    (line,) = prose_in("The source of *expression* and of it is shown - if there is any.")
    assert line == "The source of expression and of it is shown - if there is any."


@pytest.mark.parametrize(
    "text",
    [
        "+-----------+-----------------------+\n| Operator  | What the operator does. |\n+-----------+-----------+",
        "Operator   Description of what it does to them.",
        "   >>> print('This is a sentence within a call.')\n   This is a sentence within a call.",
        "   for name in names:\n       do_something_with(name)",
        "The standard type hierarchy of Python\n=====================================",
        "Too few words here.",
        "Set x1, x2, x3, x4 and x5 to 1, 2, 3, 4 and 5.",
        "This is not the end of what is said;",
        "or_test ::= and_test | or_test",
        "The __add__(), __radd__() and x.__iadd__() are for a += b.",
        "   \n\n   \n",
        "",
    ],
)
def test_what_is_no_prose_is_left_out(text: str) -> None:
    assert list(prose_in(text)) == []


def test_what_stands_between_tables_is_found() -> None:
    text = "+---+\n| a |\n+---+\n\n   It is bound to the value of the name.\n\n+---+\n| b |\n+---+\n"
    assert list(prose_in(text)) == ["It is bound to the value of the name."]
