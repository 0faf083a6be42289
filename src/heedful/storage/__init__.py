"""Files and terminals: the only package that opens a file or writes to one.

reading.py    plain text, gzip, pipes, standard input; byte-order marks, encodings, lines
writing.py    atomic writes: a temporary file, flushed, renamed
folders.py    the same for folders, and cache entries that one process builds
parts.py      long outputs in parts that are committed one by one
manifest.py   size and SHA-256 of every file of a folder
tables.py     Parquet and Arrow files
mapping.py    arrays in memory-mapped files
locks.py      file locks between processes
terminal.py   escaping of text from data before a terminal prints it
"""
