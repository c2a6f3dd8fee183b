// A request as lines to copy. The key is a variable, so that the copied text holds no secret.
const VARIABLE = "TOLLGATE_KEY";
const MAX_SHOWN = 400;
// Longer texts, which hold images, are not coloured.
const MAX_COLOURED = 200_000;

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
// Strings of shell, Python and JavaScript, numbers and constants, keywords and commands, and options of curl.
const CODE = /("[^"\\]*(?:\\.[^"\\]*)*"|'[^']*(?:'\\''[^']*)*'|`[^`\\]*(?:\\.[^`\\]*)*`)|\b(\d+(?:\.\d+)?|[Tt]rue|[Ff]alse|null|None)\b|\b(curl|import|with|as|for|in|print|const|await|of|new)\b|(?<=\s)(-[Hd])\b/g;

// A text as nodes; its tokens have the class of their colour.
function spans(text, pattern, classes) {
  if (text.length > MAX_COLOURED) return [text];
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    const [token, name] = classes(found);
    const span = document.createElement("span");
    span.className = name;
    span.textContent = token;
    nodes.push(text.slice(from, found.index), span);
    from = found.index + token.length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

// JSON in colours.
export const coloured = (text) => spans(text, TOKEN, ([, string, colon, other]) => [string ?? other, other ? "cn" : colon ? "ck" : "cs"]);

// Lines to copy in colours.
export const colouredCode = (text) => spans(text, CODE, ([token, string, constant]) => [token, string ? "cs" : constant ? "cn" : "ck"]);

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
