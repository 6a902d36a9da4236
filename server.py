"""Starts the server of a run: `python server.py [CONFIG] [flags]`, the same as `fedlearn serve`."""

import sys

if __name__ == "__main__":
    # An installed package goes before the sources beside this file, which may lack the compiled core.
    sys.path.append(sys.path.pop(0))
    from fedlearn.start import start

    start("serve", "server.py")
