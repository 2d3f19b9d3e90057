"""Product strings and subtitles: read PO, XLIFF, SRT, WebVTT and sheets, and write texts back into them."""
