"""`fedlearn identity`: what a server's owner writes into the file that `--allow` names."""

import argparse
import os
import sys

from fedlearn.commands.arguments import add_identity
from fedlearn.storage.credentials import own_identity

__all__ = ["add_identity", "identity_command"]


def identity_command(options: argparse.Namespace) -> int:
    """Prints this machine's public key, which is made if there was none; gives the exit code."""
    identity, notice, is_kept = own_identity(options.identity, os.environ)
    if notice:
        print(notice, file=sys.stderr)
    if not is_kept:
        return 1
    print(identity.public_key.hex())
    return 0
