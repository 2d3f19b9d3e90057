"""Make the parts of pages, such as the data of clips, scripts, styles and HTML.

Widgets in notebooks, served pages and saved pages share these parts. `clips` returns the data of each clip,
and reads its audio on demand. `assets` returns the script of a widget, including the modules it imports.
`html` makes pages that work without a notebook. `arguments` checks arguments of public functions.
`word_times` estimates the times of words.
"""
