"""Devices on which PyTorch can run trials on this machine."""

import torch


def use_device(device: str) -> torch.device:
    """The device, with convolutions set to keep all digits of float32, as products of matrices do.

    By default cuDNN rounds what it multiplies to ten bits, so that audits could not tell an honest GPU from a liar.

    Raises:
        ValueError: PyTorch has no such device here.
    """
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not has.get(device, True):
        there = [name for name, is_there in has.items() if is_there]
        raise ValueError(
            f"device: expected one that PyTorch {torch.__version__} has here ({', '.join(there)}), got "
            f"{device}; leave --device out, or install a PyTorch for it"
        )
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(device)
