"""Lends this machine to a server: `python client.py ADDRESS`, the same as `fedlearn join`."""

import sys

if __name__ == "__main__":
    # An installed package goes before the sources beside this file, which may lack the compiled core.
    sys.path.append(sys.path.pop(0))
    from fedlearn.start import start

    start("join", "client.py")
