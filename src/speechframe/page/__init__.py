"""What pages show and how pages are made: clips of a run, and the scripts and styles that play them.

Widgets in notebooks, pages served to listeners and pages saved as one file are made of the same parts:
`clips` gives what a page knows of each clip and, when it is asked for, the audio; `assets` gives a widget's
script with the shared core before it; `html` makes a page that needs neither a notebook nor a network.
"""
