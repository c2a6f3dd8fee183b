// A request as lines to copy. The key is a variable, so that the copied text holds no secret.
const VARIABLE = "TOLLGATE_KEY";
const MAX_SHOWN = 400;

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const quoted = (text) => JSON.stringify(text);

// Base64 of images makes a request unreadable: shown shortened, copied whole.
export function shortened(value) {
  return JSON.stringify(value, (_, text) => (typeof text === "string" && text.length > 2000 && !/\s/.test(text.slice(0, MAX_SHOWN)) ? `${text.slice(0, 60)}…` : text), 2);
}

// Python writes its constants in its own way.
function python(value, indent = "") {
  const next = `${indent}    `;
  if (Array.isArray(value)) return value.length ? `[\n${value.map((one) => next + python(one, next)).join(",\n")},\n${indent}]` : "[]";
  if (value !== null && typeof value === "object") {
    const pairs = Object.entries(value).map(([name, one]) => `${next}${quoted(name)}: ${python(one, next)}`);
    return pairs.length ? `{\n${pairs.join(",\n")},\n${indent}}` : "{}";
  }
  if (value === null) return "None";
  return typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(-?\d+(?:\.\d+)?|true|false|null)\b/g;

// JSON in colours, as nodes.
export function coloured(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(TOKEN)) {
    nodes.push(text.slice(from, found.index));
    const span = document.createElement("span");
    span.className = found[3] ? "cn" : found[2] ? "ck" : "cs";
    span.textContent = found[1] ?? found[3];
    nodes.push(span, found[2] ?? "");
    from = found.index + found[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

export const languages = {
  curl({ url, headers, credential, body }) {
    const lines = Object.entries(headers).map(([name, value]) => `  -H ${shell(`${name}: ${value}`)}`);
    lines.unshift(`  -H "${credential.name}: ${credential.prefix}$${VARIABLE}"`);
    return [`curl ${shell(url)}`, ...lines, `  -d ${shell(JSON.stringify(body))}`].join(" \\\n");
  },
  python({ url, headers, credential, body, stream }) {
    const begin = `import os\nimport httpx\n\nheaders = ${python(headers)}\nheaders[${quoted(credential.name)}] = ${quoted(credential.prefix)} + os.environ[${quoted(VARIABLE)}]\n`
      + `body = ${python(body)}\n`;
    const sent = `${quoted(url)}, headers=headers, json=body, timeout=120)`;
    return begin + (stream
      ? `with httpx.stream("POST", ${sent} as answer:\n    for line in answer.iter_lines():\n        print(line)`
      : `print(httpx.post(${sent}.json())`);
  },
  node({ url, headers, credential, body, stream }) {
    const key = credential.prefix ? `\`${credential.prefix}\${process.env.${VARIABLE}}\`` : `process.env.${VARIABLE}`;
    const sent = JSON.stringify(headers, null, 2).replace(/\n\}$/, `,\n  ${quoted(credential.name)}: ${key},\n}`).replaceAll("\n", "\n  ");
    const read = stream
      ? "for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) process.stdout.write(chunk);"
      : "console.log(await answer.json());";
    return `const answer = await fetch(${quoted(url)}, {\n  method: "POST",\n  headers: ${sent},\n`
      + `  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),\n});\n${read}`;
  },
};
