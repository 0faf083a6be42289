"""Files and terminals: the only package that opens a file or writes to one.

reading.py    plain, gzip, pipe, standard input; byte-order marks, encodings, lines
writing.py    a temporary name, flushed, renamed; a full disk is one sentence
locks.py      one process at a time
terminal.py   text from data, made harmless before a terminal shows it
"""
