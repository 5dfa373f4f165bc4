"""Write the files of the JavaScript client."""

from . import PAGE, description, files

for name, text in files(description()).items():
    (PAGE / name).write_text(text, encoding="utf-8")
