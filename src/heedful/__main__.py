"""python -m heedful"""

from heedful.cli import main

main()
