"""JSON bodies of every kind, for the comparison of pyarrow's way, the way body by body, and Spark's `from_json`."""

DDL = (
    "id long, amount double, name string, ok boolean, inner struct<x: int, y: string>, many array<long>, "
    "items array<struct<x: int>>, deep struct<in: struct<x: int, y: array<string>>>, f float, half smallint"
)
DDL_WITH_MAP = f"{DDL}, counts map<string, long>, named map<string, struct<x: int>>"

# Spark gives a struct of nulls for these, and null for the blank ones.
NO_OBJECTS = [
    b"", b"  ", b"null", b"1", b'"x"', b"[]", b'[{"id":1}]', b'{"id":1', b'{"id":1,"name":', b'{"name":"a","id":1,}',
    b'{"id":01}', b'{"id":+1}', b'{"name":"a\tb"}', b'{"id":1,"name":"a\nb"}', b'{"id":1,"zzz":}', b'\xef\xbb\xbf{"id":1}',
    b'{"id":1 /* c */}', b'{"id":nul}', b"x", b"}", b'{"id":1]', b'1},{"v":{"id":1}',
]  # fmt: skip

OBJECTS = [
    b'{"id":1}', b"{}", b'{"id":1} x', b'{"id":1}{"id":2}', b'{"id":1},"x":2', b'{"id":"x","name":"b"}',
    b'{"id":1.0,"name":"b"}', b'{"id":1e3}', b'{"id":12345678901234567890,"name":"q"}', b'{"id":-9223372036854775808}',
    b'{"amount":1}', b'{"amount":"NaN"}', b'{"amount":NaN}', b'{"amount":"1.5","name":"z"}', b'{"amount":1e999}',
    b'{"amount":"Infinity"}', b'{"amount":-Infinity}', b'{"amount":""}', b'{"amount":12345678901234567890123}',
    b'{"name":1.50}', b'{"name":{"x": 1.0, "y":[1 ,2, null, true, "\\u00e9\\n"]}}', b'{"name":true}', b'{"name":[ 1]}',
    b'{"name":null}', b'{"name":1e5}', b'{"name":1.0E+2}', b'{"name":0.0001}', b'{"name":123456789.5}', b'{"name":-0.0}',
    b'{"name":"\\ud800x"}', b'{"name":"\\ud83d\\ude00"}', b'{"name":"\\u0000"}', b'{"name":"\xff\xfeab\xe2\x82"}',
    b'{"name":""}', "{\"name\":\"订单\"}".encode(),
    b'{"ok":"true","id":3}', b'{"ok":1}', b'{"ok":false}', b'{"half":32768,"id":3}', b'{"half":-32768}',
    b'{"inner":{"x":"no","y":"yes"},"id":1}', b'{"inner":5,"id":1}', b'{"inner":[],"id":1}', b'{"inner":{},"id":1}',
    b'{"inner":{"x":2147483648,"y":1},"id":1}', b'{"inner":null}', b'{"inner":"","id":2}',
    b'{"many":[1,"x",3],"id":1}', b'{"many":5,"id":1}', b'{"many":[],"id":2}', b'{"many":[null,2]}', b'{"many":"","id":2}',
    b'{"items":[{"x":1},{"x":"q"},5,null],"id":2}', b'{"items":[{"x":1},null,{}],"id":2}', b'{"items":{"x":1},"id":2}',
    b'{"deep":{"in":{"x":1,"y":["a"]}},"id":1}', b'{"deep":{"in":7},"id":1}', b'{"deep":{"in":{"x":"s","y":[1]}},"id":1}',
    b'{"id":1,"id":2}', b'{"id":1,"id":null}', b'{"ID":1}', b'{"f":0.1}', b'{"f":1e300}', b'{"f":16777217}', b'{"id":-0}',
    b'{"zzz":{"a":[1,{"b":"c"}]},"id":9}', b'{"zzz":1,"zzz":2,"id":4}', b'{"":1,"id":5}', b'{"id":""}',
    b'{"id":true,"name":"r"}', b'{"amount":true,"name":"r"}', b'{ "id" : 1 ,\n\t"name" : "x"\r\n}\n', b'{"v":7,"id":3}',
    b'{"inner":{"x":3,"y":"q"},"inner":{"y":"p"}}', b'{"id":4}}\n{"v":{"id":7}',
]  # fmt: skip

WITH_MAPS = [
    b'{"counts":{"a":1,"b":"x"},"id":2}', b'{"counts":{"a":1,"b":2}}', b'{"counts":[],"id":4}', b'{"counts":{"a":1,"a":2}}',
    b'{"counts":{}}', b'{"counts":{"a":null}}', b'{"named":{"a":{"x":1},"b":null}}', b'{"named":{"a":{"x":"q"}},"id":1}',
    b'{"named":{"a":5},"id":1}', b'{"items":[{"x":"q"}],"id":1}',
]  # fmt: skip
