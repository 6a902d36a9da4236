"""Recurrent networks that predict the next token of a text, with kernels of their own."""
