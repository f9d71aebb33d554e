"""Text of files that people made on any system: UTF-8 or, where the byte order mark says so, UTF-16."""

import codecs


def decode_text(data: bytes, errors: str = "strict") -> str:
    """Returns the text without its byte order mark.

    Args:
        data: UTF-8, or UTF-16 with its mark, as Windows PowerShell writes what is sent to a file.
        errors: what happens to bytes that are no text, as for `bytes.decode`.

    Raises:
        UnicodeDecodeError: a byte is no text, and `errors` is "strict".
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors)
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors)
