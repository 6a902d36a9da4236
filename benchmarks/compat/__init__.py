"""What users of other systems type, beside plain PyTorch."""
