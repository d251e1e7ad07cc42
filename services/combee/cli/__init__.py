"""The command line: ``combee NAME`` is in ``NAME.py`` or the folder ``NAME``, and ``verbs.py`` lists them."""
