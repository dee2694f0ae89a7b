"""`python -m streamd` is the program."""

import os
import subprocess
import sys

from ._program import find_program

if __name__ == "__main__":
    command = [find_program(), *sys.argv[1:]]
    if os.name == "posix":
        os.execv(command[0], command)
    sys.exit(subprocess.run(command).returncode)
