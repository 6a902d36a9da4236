"""Text as tokens: tokenizers, documents, token blocks, and writing with a language model."""
