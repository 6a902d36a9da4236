"""ResNet-50, a GPT and BERT-tiny cut in three are the whole to the bit, and load into the module that was not cut."""

import json

import pytest

from tests.end_to_end.processes import ROOT, run


@pytest.mark.parametrize("model", ["gpt", pytest.param("resnet50", marks=pytest.mark.long), "bert-tiny"])
def test_a_model_cut_in_three_is_the_whole_to_the_bit(model: str) -> None:
    pytest.importorskip("torch")
    if model == "bert-tiny":
        pytest.importorskip("transformers")
    flags = ["--json", "--models", model, "--members", "2", "--rounds", "1"]
    done = run("-m", "benchmarks.models.split_models", *flags, folder=ROOT, limit_s=580)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["is_equal"]
    assert row["members_are_equal"]
    assert row["loads_strictly"]
    assert len(row["cuts"]) == 2
    print(f"{model}: {row['n_parameters']:,} parameters, {row['sent_bytes']} bytes a member cross")
