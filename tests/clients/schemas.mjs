// Prints JSON schemas that zod makes, with values that zod accepts and refuses. The golden
// file constraint/jsonschema/testdata/zod.json has its output.
import * as z from "zod";

const tree = z.object({ name: z.string(), get children() { return z.array(tree); } });
const uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const cases = {
  email: [z.email(), ["a.b+c@example.com", "averyveryverylongname@mail.sub.example.co.uk"], ["a", "a@b", "a..b@example.com"]],
  "email with a length": [z.email().min(8).max(255), ["ab@example.com"], ["a@b.de"]],
  "email or null": [z.email().nullable(), ["a@example.com", null], ["a", 1]],
  uuid: [z.uuid(), [uuid], ["f81d4fae", uuid + "0"]],
  uuidv4: [z.uuidv4(), ["f81d4fae-7dec-41d0-a765-00a0c91e6bf6"], [uuid]],
  guid: [z.guid(), [uuid], ["x"]],
  url: [z.url(), ["https://example.com/a?b#c", "mailto:a@example.com"], ["example", ""]],
  hostname: [z.hostname(), ["www.example.com", "localhost"], ["-a", "a b"]],
  emoji: [z.emoji(), [], []],
  base64: [z.base64(), ["", "SGVsbG8=", "SGk="], ["SGVsbG8", "="]],
  base64url: [z.base64url(), ["SGVsbG8"], ["a+b="]],
  hex: [z.hex(), ["0aF"], ["x"]],
  nanoid: [z.nanoid(), ["V1StGXR8_Z5jdHi6B-myT"], ["V1"]],
  cuid: [z.cuid(), ["cjld2cjxh0000qzrmn831i7rn"], ["x"]],
  cuid2: [z.cuid2(), ["tz4a98xxat96iws9zmbrgj3a"], ["A"]],
  ulid: [z.ulid(), ["01ARZ3NDEKTSV4RRFFQ69G5FAV"], ["01"]],
  xid: [z.xid(), ["9m4e2mr0ui3e8a215n4g"], ["9"]],
  ksuid: [z.ksuid(), ["0ujtsYcgvSTl8PAuAdqWYSMnLOv"], ["0"]],
  ipv4: [z.ipv4(), ["192.0.2.1"], ["256.0.0.1", "1.2.3"]],
  ipv6: [z.ipv6(), ["2001:db8::1", "::1", "2001:db8:0:0:8:800:200c:417a"], ["1::2::3", "12345::"]],
  cidrv4: [z.cidrv4(), ["192.0.2.0/24"], ["192.0.2.0/33", "192.0.2.0"]],
  cidrv6: [z.cidrv6(), ["2001:db8::/32"], ["2001:db8::"]],
  mac: [z.mac(), ["00:1a:2b:3c:4d:5e"], ["00:1a:2b"]],
  e164: [z.e164(), ["+4915112345678"], ["015112345678"]],
  date: [z.iso.date(), ["2024-02-29"], ["2023-02-29", "2024-2-9"]],
  time: [z.iso.time(), ["12:30", "12:30:59.5"], ["24:00:00"]],
  datetime: [z.iso.datetime(), ["2024-02-29T12:00:00Z"], ["2024-02-29T12:00:00+01:00"]],
  "datetime with an offset": [z.iso.datetime({ offset: true }), ["2024-02-29T12:00:00+01:00"], ["2024-02-30T12:00:00Z"]],
  duration: [z.iso.duration(), ["P1Y2M3DT4H5M6S", "P2W", "PT1H"], ["P", "PT", "1D"]],
  pattern: [z.string().regex(/^[a-z]+$/), ["abc"], ["", "a1"]],
  "two patterns": [z.string().startsWith("ab").endsWith("yz"), ["abyz", "ab yz"], ["aby", "ab"]],
  "pattern with lookaheads": [z.string().regex(/^(?=.*\d)(?=.*[a-z])(?!.*\s).{4,8}$/), ["abc1"], ["abcd", "1234", "a 1b", "ab1"]],
  "part of a text": [z.string().includes("x").min(3), ["axb"], ["x", "abc"]],
  lowercase: [z.string().lowercase(), ["abc é"], ["Abc"]],
  length: [z.string().min(2).max(5), ["ab", "é漢🎪"], ["a", "abcdef"]],
  "template literal": [z.templateLiteral(["v", z.number(), "-", z.enum(["a", "b"])]), ["v1-a", "v1.5-b"], ["v-a", "v1-c"]],
  number: [z.number(), [1, -2.5], ["1", null]],
  int: [z.int(), [5, -5], [1.5]],
  int32: [z.int32(), [2147483647], [2147483648]],
  positive: [z.number().positive().max(10), [0.5, 10], [0, 10.5]],
  "multiple of 0.01": [z.number().multipleOf(0.01), [0, 1, 0.25, -19.99], [0.001]],
  "multiple with bounds": [z.int().multipleOf(5).min(0).max(100), [0, 5, 100], [3, 105, -5]],
  "price": [z.number().multipleOf(0.01).nonnegative().max(999.99), [0, 12.5, 999.99], [-1, 1000, 0.005]],
  literals: [z.literal(["a", "b", 3]), ["a", 3], ["c", 4]],
  enum: [z.enum(["a", "b"]), ["a"], ["c"]],
  array: [z.array(z.number()).min(1).max(3), [[1], [1, 2, 3]], [[], [1, 2, 3, 4]]],
  tuple: [z.tuple([z.string(), z.number()]), [["a", 1]], [["a"], [1, "a"]]],
  "tuple with a rest": [z.tuple([z.string()], z.number()), [["a"], ["a", 1, 2]], [["a", "b"]]],
  object: [z.object({ a: z.string(), b: z.number().optional(), c: z.boolean().default(true) }), [{ a: "x", b: 1, c: false }], [{ a: 1, c: true }]],
  "strict object": [z.strictObject({ a: z.string() }), [{ a: "x" }], [{ a: "x", b: 1 }]],
  "loose object": [z.looseObject({ a: z.string() }), [{ a: "x", b: 1 }], [{ b: 1 }]],
  catchall: [z.object({ a: z.string() }).catchall(z.number()), [{ a: "x", b: 1 }], [{ a: "x", b: "y" }]],
  record: [z.record(z.string(), z.number()), [{}, { x: 1 }], [{ x: "y" }]],
  "record of an enum": [z.record(z.enum(["a", "b"]), z.number()), [{ a: 1, b: 2 }], [{ a: 1 }, { a: 1, b: 2, c: 3 }]],
  "partial record of an enum": [z.partialRecord(z.enum(["a", "b"]), z.number()), [{}, { b: 2 }], [{ c: 3 }]],
  "record of a pattern": [z.record(z.string().regex(/^k\d+$/), z.number()), [{ k1: 1 }], [{ x: 1 }]],
  "record of uuids": [z.record(z.uuid(), z.string()), [{ [uuid]: "a" }], [{ x: "a" }]],
  union: [z.union([z.string(), z.number()]), ["a", 1], [true]],
  "discriminated union": [
    z.discriminatedUnion("k", [z.object({ k: z.literal("a"), x: z.number() }), z.object({ k: z.literal("b"), y: z.string() })]),
    [{ k: "a", x: 1 }, { k: "b", y: "s" }], [{ k: "a", y: "s" }, { x: 1 }],
  ],
  "exclusive union": [z.xor([z.object({ a: z.string() }), z.object({ b: z.number() })]), [{ a: "x" }, { b: 1 }], [{ c: 1 }]],
  intersection: [z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })), [{ a: "x", b: 1 }], [{ a: "x" }]],
  recursive: [tree, [{ name: "a", children: [{ name: "b", children: [] }] }], [{ name: "a", children: [{}] }]],
};

const out = {};
for (const [name, [schema, yes, no]] of Object.entries(cases)) {
  for (const v of yes) if (!schema.safeParse(v).success) throw new Error(`${name} refuses ${JSON.stringify(v)}`);
  for (const v of no) if (schema.safeParse(v).success) throw new Error(`${name} accepts ${JSON.stringify(v)}`);
  for (const target of ["draft-2020-12", "draft-7"]) out[`${name}, ${target}`] = { schema: z.toJSONSchema(schema, { target }), yes, no };
}
console.log(JSON.stringify(out, null, 1));
