// Texts that do harm if a page renders them as markup, and the table of the fields that take texts.

// Quotes end attributes, the element has a marker, and a template engine would evaluate the braces. The second text is for
// short fields.
const SHORT = `'"><img data-hostile src=x onerror=hostile()>{{7-7}}`;
const SHORTEST = `'"><i data-hostile>`;
const FURTHER = [
  "</textarea></title></script><svg data-hostile onload=hostile()>",
  "<script data-hostile>hostile()</script>",
  "' autofocus onfocus=hostile() data-hostile='",
  "javascript:hostile()//",
  "[x](javascript:hostile()) ![x](x' onerror='hostile())",
  "${7-7}<%=7-7%>#{7-7}",
  "&lt;b&gt;&amp;\\u003cb\\u003e",
  "\u202e\u2066<b data-hostile>\u2069",
  "w".repeat(300),
];

// Texts by field. Each begins with a unique word, so that it can be found on a page.
export class HostileTexts {
  #made = new Map();

  // A text of at most this many bytes for a field. Names have no invisible characters and headers are ASCII, so theirs are `plain`. Some
  // have no spaces.
  of(field, { max = 100, plain = max <= 256, spaces = true } = {}) {
    let text = `h${this.#made.size + 1}x${max < 80 ? SHORTEST : SHORT}`;
    for (const payload of FURTHER) {
      const fits = text.length + payload.length <= max;
      if (fits && !(plain && /[^ -~]/.test(payload))) text += payload;
    }
    if (!spaces) text = text.replaceAll(" ", "/");
    if (text.length > max) throw new Error(`${field} is too short for ${text}`);
    this.#made.set(text, field);
    return text;
  }

  get fields() {
    return new Set(this.#made.values());
  }

  // The fields whose texts occur in none of these pages as they were stored.
  unseenIn(pages) {
    return [...this.#made].filter(([text]) => !pages.some((page) => page.includes(text))).map(([, field]) => field);
  }
}

// The fields of request bodies that take any text: those of the schemas of new rows, and what only changes have. Numbers, words of a list,
// times, ids and addresses have a pattern or a list.
export function textFields(document) {
  const { schemas } = document.components;
  const found = new Set();
  const seen = new Set();
  const isText = (schema) => schema.type === "string" && !schema.enum && !schema.format && (!schema.pattern || schema.pattern.startsWith("^[^") || schema.pattern.includes("[\\t -~]"));
  const visit = (schema, at) => {
    if (!schema || typeof schema !== "object") return;
    if (schema.$ref) {
      const name = schema.$ref.split("/").pop();
      if (seen.has(name)) return;
      seen.add(name);
      const row = name.replace(/^New|Change$/g, "");
      for (const [field, inner] of Object.entries(schemas[name].properties ?? {})) visit(inner, `${row}.${field}`);
      if (!schemas[name].properties) visit(schemas[name], row);
      return;
    }
    if (isText(schema)) found.add(at);
    for (const inner of [schema.items, schema.additionalProperties, ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]) visit(inner, at);
    for (const [field, inner] of Object.entries(schema.properties ?? {})) visit(inner, `${at}.${field}`);
  };
  for (const operations of Object.values(document.paths)) {
    for (const operation of Object.values(operations)) {
      const body = operation.requestBody?.content["application/json"].schema;
      visit(body, operation.operationId);
    }
  }
  return [...found].sort();
}
