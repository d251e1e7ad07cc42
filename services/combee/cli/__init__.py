"""The command line: ``combee NAME`` stands in ``NAME.py`` or the folder ``NAME``, and ``verbs.py`` lists them."""
