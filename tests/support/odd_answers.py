"""Answers that deviate from the standard: those that browsers or curl read, and dangerous ones.

All readable ones have the body "hello".
"""

from __future__ import annotations

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 5\r\n"
END = LENGTH + b"\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

ODD: dict[str, bytes] = {
    "equal Content-Lengths": OK + LENGTH + END,
    "lines that end with LF": (OK + b"Server: x\r\n" + END).replace(b"\r\n", b"\n"),
    "folded line": OK + b"X: a\r\n\t b\r\n" + END,
    "blanks before the colon": OK + b"Content-Type : text/html\r\nX\t: y\r\n" + END,
    "odd header names": OK + b"X Y: z\r\nX(1): z\r\nX\xc3\xa9: z\r\n: z\r\n" + END,
    "no reason phrase": b"HTTP/1.1 200\n" + END,
    "HTTP/1.0, to the end": b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello",
    "ICY": b"ICY 200 OK\r\nContent-Type: text/html\r\n" + END,
    "empty lines before": b"\r\n\n" + OK + END,
    "lower-case protocol": b"http/1.1 200 ok\r\n" + END,
    "HTTP/2 in the status line": b"HTTP/2 200\r\n" + END,
    "blanks around the status": b"HTTP/1.1  200OK\r\n" + END,
    "line without a colon": OK + b"Powered by x\r\n" + END,
    "control characters in a value": OK + b"X: a\x01b\x7fc\rd\r\n" + END,
    "blanks around Content-Length": OK + b"Content-Length: \t 5 \t\r\n\r\nhello",
    "odd chunks": CHUNKED + b'0005  ; a = "b;c"\nhello\n0 \n\n',
    "bytes after the last chunk": CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\ngarbage",
    "gzip that is none": OK + b"Content-Encoding: gzip\r\n" + END,
}

ALSO_ODD: dict[str, bytes] = {
    "equal lengths in a list": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "blanks before the colon of Content-Length": OK + b"Content-Length : 5\r\n\r\nhello",
    "some lines end with LF": OK + b"X: y\nContent-Length: 5\r\n\nhello",
    "several folded lines": OK + b"X: a\r\n b\r\n\tc\r\n" + END,
    "folded from its beginning": OK + b"X:\r\n a\r\n" + END,
    "blank before the first field": OK + b" X: y\r\n" + END,
    "blanks before the status line": b" \t" + OK + END,
    "HTTP without a version": b"HTTP 200 OK\r\n" + END,
    "HTTP/1": b"HTTP/1 200 OK\r\n" + END,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + END,
    "tabs in the status line": b"HTTP/1.1\t200\tOK\r\n" + END,
    "odd interim answer": b"HTTP/1.1 103 Early\nX : y\n\nHTTP/1.1 200 OK\n" + END,
    "chunks that end with LF": CHUNKED + b"2\nhe\n3\nllo\n0\n\n",
    "trailer of odd chunks": CHUNKED + b"5 \r\nhello\r\n0 \r\nX: y\r\n\r\n",
    "odd head, chunks": b"HTTP/1.1 200 OK\nTransfer-Encoding : chunked\n\n5\r\nhello\r\n0\r\n\r\n",
    "odd head, to the end": b"HTTP/1.1 200 OK\nServer: x\n\nhello",
}

DANGEROUS: dict[str, bytes] = {
    "lengths that differ": OK + LENGTH + b"Content-Length: 6\r\n\r\nhello!",
    "lengths that differ in a list": OK + b"Content-Length: 5, 6\r\n\r\nhello!",
    "Content-Length and Transfer-Encoding": OK
    + LENGTH
    + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "equal lengths and Transfer-Encoding": OK
    + LENGTH * 2
    + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "negative length": OK + b"Content-Length: -5\r\n\r\nhello",
    "signed length": OK + b"Content-Length: +5\r\n\r\nhello",
    "equal signed lengths": OK + b"Content-Length: +5\r\n" * 2 + b"\r\nhello",
    "length with a blank in it": OK + b"Content-Length: 0 5\r\n\r\nhello",
    "hexadecimal length": OK + b"Content-Length: 0x5\r\n\r\nhello",
    "empty length": OK + b"Content-Length:\r\n\r\nhello",
    "folded length": OK + b"Content-Length: 5\r\n 5\r\n\r\nhello",
    "length folded from its beginning": OK + b"Content-Length:\r\n 5\r\n\r\nhello",
    "folded Transfer-Encoding": OK
    + b"Transfer-Encoding:\r\n chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding beyond chunked": OK
    + b"Transfer-Encoding : chunked, gzip\r\nTransfer-Encoding: x\r\n"
    + END,
    "zero byte in a head": OK + b"X: a\x00b\r\n" + END,
    "zero byte in a line without a colon": OK + b"X\x00\r\n" + END,
    "chunk size with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "chunk size with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "odd chunk longer than said": CHUNKED + b"2 \r\nhello\r\n0\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n" + END,
    "no status": b"HTTP/1.1 OK\r\n" + END,
    "markup": b"<html>hello</html>\r\n\r\n",
}
"""Refused answers: the end of their bodies would be a guess, or they are not HTTP."""
