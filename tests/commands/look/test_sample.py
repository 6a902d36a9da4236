from pathlib import Path

import numpy as np
import pytest

from fedlearn.commands.look import sample as module
from fedlearn.commands.look.sample import sample_command
from fedlearn.runs.run import Run, named_task
from fedlearn.tasks.kind import TextExaminer
from fedlearn.text.language_model import Continuation
from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.writing import CIRCLE_CHARACTERS
from tests.commands.recorded_run import damage_checkpoint, options_of
from tests.run_folders import created, task_config


def test_sample_says_the_step_beside_the_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_command(options_of(run)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("the ")
    assert 0 < len(shown.out) - len("the \n") <= 20
    assert "step" not in shown.out
    assert shown.err == "run 1, step 5\n"


def test_sample_writes_200_tokens_unless_it_is_told_otherwise(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def written(length: int | None) -> str:
        assert sample_command(options_of(run, length=length, seed=1)) == 0
        return capsys.readouterr().out

    assert written(None) == written(200) != written(100)


def test_sample_writes_with_the_weights_of_a_step(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_command(options_of(run, step=2)) == 0
    assert capsys.readouterr().err == "run 1, step 2\n"


def test_same_seed_writes_the_same_and_the_flags_change_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def written(**options: float | None) -> str:
        assert sample_command(options_of(run, length=60, **options)) == 0
        return capsys.readouterr().out

    plain = written(seed=1)
    assert written(seed=1) == written(seed=1, temperature=0.6) == plain
    changes: list[dict[str, float | None]] = [
        {"temperature": 2.0},
        {"top_k": 1},
        {"top_p": 0.1},
        {"repetition_penalty": 3.0},
        {"no_repeat_ngram": 1},
        {"seed": 2},
        {"seed": None, "beams": 3},
    ]
    for change in changes:
        assert written(**{"seed": 1, **change}) != plain, change


def test_search_goes_by_its_flags(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_command(options_of(run, beams=16, length=100, no_repeat_ngram=3, length_penalty=0.0)) == 0
    text = capsys.readouterr().out[:-1]
    assert 90 < len(text) <= 104
    assert len({text[i : i + 3] for i in range(len(text) - 2)}) == len(text) - 2


def test_search_does_not_go_in_circles_unless_it_is_told_to(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def longest_circle(**options: int) -> int:
        assert sample_command(options_of(run, beams=4, length=60, **options)) == 0
        text = capsys.readouterr().out
        return max(n for n in range(60) if any(text[i : i + n] in text[i + 1 :] for i in range(len(text) - n)))

    assert longest_circle() == CIRCLE_CHARACTERS - 1
    assert longest_circle(no_repeat_ngram=0) > CIRCLE_CHARACTERS


def test_characters_of_the_prompt_that_the_run_does_not_know_are_told(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample_command(options_of(run, prompt="the \u6c49\u5b57")) == 0
    assert "--prompt: 2 of 6 characters are unknown to the run's tokenizer" in capsys.readouterr().err


def test_damaged_checkpoint_is_told_beside_the_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    name = damage_checkpoint(run)
    assert sample_command(options_of(run)) == 0
    shown = capsys.readouterr()
    assert name not in shown.out
    assert name in shown.err
    assert "run 1, step 5" in shown.err


def test_sample_keeps_lines_and_replaces_what_a_terminal_would_obey(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    examiner = run.prepared.examiner
    assert isinstance(examiner, TextExaminer)
    examiner.tokenizer = ByteTokenizer()
    tokens = np.array(ByteTokenizer().encode("\x1b[2J\tb\r\nc\x9b\x7f"), dtype=np.uint16)
    monkeypatch.setattr(module, "find", lambda *_, **__: run)
    monkeypatch.setattr(module, "written", lambda *_, **__: [Continuation(tokens, 0.0, is_stopped=False)])
    assert sample_command(options_of(run, prompt="")) == 0
    assert capsys.readouterr().out == "\ufffd[2J\tb\ufffd\nc\ufffd\ufffd\n"


@pytest.mark.parametrize(("flag", "value"), [("seed", -1), ("length", -1), ("beams", 0), ("beams", 4097)])
def test_flag_that_is_out_of_range_is_named(run: Run, flag: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"--{flag}: expected .* got {value}"):
        sample_command(options_of(run, **{flag: value}))


@pytest.mark.parametrize("flags", [{"temperature": -1.0}, {"beams": 2, "length_penalty": -1.0}])
def test_nothing_is_printed_before_a_rule_is_refused(
    run: Run, flags: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"temperature|length_penalty"):
        sample_command(options_of(run, **flags))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("flag", ["temperature", "top-k", "top-p", "repetition-penalty", "seed"])
def test_flag_of_sampling_is_not_ignored_beside_beams(run: Run, flag: str) -> None:
    with pytest.raises(ValueError, match=f"--{flag}: expected none for beam search; leave it out"):
        sample_command(options_of(run, beams=2, **{flag.replace("-", "_"): 1}))


def test_flag_of_the_search_is_not_ignored_without_beams(run: Run) -> None:
    with pytest.raises(ValueError, match="--length-penalty: expected none for sampling, without --beams; leave it out"):
        sample_command(options_of(run, length_penalty=1.0))


REWARDS = """import torch
import fedlearn

class Letters:
    eos_token_id, pad_token_id = 0, None

    def encode(self, text):
        return [ord(letter) - 96 for letter in text]

    def decode(self, tokens):
        return "".join(chr(token + 96) for token in tokens)

def write(model, prompts, is_text):
    return torch.stack([prompts[:, -1], model.weight.argmax(-1)[prompts[:, -1]]], 1)

task = fedlearn.reward(
    lambda: torch.nn.Embedding.from_pretrained(torch.roll(torch.eye(5), 1, 1), freeze=False),
    lambda prompt, text: 0.0, ["a", "ab"], tokenizer=Letters, held_out=["c", "cd"], write=write,
)
"""


def test_sample_of_a_reward_writes_after_held_out_prompts_or_the_one_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "writer.py").write_text(REWARDS)
    entry = f"{tmp_path / 'writer.py'}:task"
    run = created(task_config(tmp_path, task=entry), named_task(entry))
    written_by_task = {"length": None, "task": entry}
    assert sample_command(options_of(run, prompt="", **written_by_task)) == 0
    shown = capsys.readouterr()
    assert shown.out == "ccd\ncdd\n"  # what follows d is the end
    assert shown.err.endswith("run 1, step 0\n")
    assert sample_command(options_of(run, prompt="ba", **written_by_task)) == 0
    assert capsys.readouterr().out == "baab\n"
    for flag, value in (("temperature", 0.5), ("length", 200)):
        with pytest.raises(ValueError, match=f"--{flag}: expected none, since the run's task says how it writes"):
            sample_command(options_of(run, **written_by_task | {flag: value}))
    with pytest.raises(ValueError, match=r"--task: expected the file of the run's task, since writing takes its code"):
        sample_command(options_of(run, prompt=""))


WRITES = """import fedlearn
import numpy as np

class Names(fedlearn.Task):
    tensors = {"letters": np.zeros(3, dtype=np.float32)}

    def losses(self, members, batch):
        return members(lambda arrays: float(arrays["letters"].sum()))

    def texts(self, weights, prompts):
        return [(prompt, "abc"[weights.argmax()]) for prompt in prompts]

task = Names()
"""


def test_sample_of_a_task_of_ones_own_writes_what_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.py").write_text(WRITES)
    entry = f"{tmp_path / 'names.py'}:task"
    run = created(task_config(tmp_path, task=entry), named_task(entry))
    assert sample_command(options_of(run, prompt="b", length=None, task=entry)) == 0
    assert capsys.readouterr().out == "ba\n"
