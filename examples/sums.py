"""Two-digit sums: a small GPT, pretrained badly, tuned by a reward without gradient. Needs fedlearn[transformers].

python examples/sums.py                             # pretrains by backpropagation, into examples/sums.safetensors
python server.py --task examples/sums.py:task
python client.py --task examples/sums.py:task ADDRESS
"""

import random
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from transformers import GPT2Config, GPT2LMHeadModel

import fedlearn

PRETRAINED = Path(__file__).with_suffix(".safetensors")
answers = {f"{a:02}+{b:02}=": f"{a + b:03}" for a in range(100) for b in range(100)}
prompts = random.Random(0).sample(list(answers), k=10_000)


class Tokenizer:
    encode = staticmethod(lambda text: ["0123456789+=".index(letter) for letter in text])
    decode = staticmethod(lambda tokens: "".join("0123456789+="[token] for token in tokens))


def model():
    shape = {"vocab_size": 12, "n_positions": 9, "n_embd": 64, "n_layer": 2, "n_head": 4}
    student = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()
    if PRETRAINED.exists():
        load_model(student, PRETRAINED)
    return student


task = fedlearn.reward(
    model, lambda prompt, text: text == answers[prompt], prompts[:8000], tokenizer=Tokenizer(), new_tokens=3,
    held_out=prompts[8000:],
)  # fmt: skip

if __name__ == "__main__":
    student, right = model(), 0.0
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.002)
    while right < 0.25:
        texts = torch.tensor([Tokenizer.encode(text + answers[text]) for text in random.sample(prompts[:8000], k=256)])
        output = student(texts, labels=texts.masked_fill(torch.arange(9) < 6, -100))
        right = (output.logits[:, 5:8].argmax(-1) == texts[:, 6:]).all(1).float().mean().item()
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    save_model(student, PRETRAINED)
