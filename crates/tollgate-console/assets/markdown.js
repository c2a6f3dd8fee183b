// Markdown of answers as elements. Texts become text nodes and links are http(s) only, so that nothing of an answer is markup.
const INLINE = /(`+)([\s\S]+?)\1|\*\*([\s\S]+?)\*\*|\*([^*\s][^*]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function inline(text) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > from) parts.push(text.slice(from, found.index));
    if (found[2] !== undefined) parts.push(element("code", found[2]));
    else if (found[3] !== undefined) parts.push(element("b", found[3]));
    else if (found[4] !== undefined) parts.push(element("em", found[4]));
    else {
      const link = element("a", found[5]);
      link.href = found[6];
      link.rel = "noreferrer noopener";
      link.target = "_blank";
      parts.push(link);
    }
    from = found.index + found[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

function list(lines) {
  const isNumbered = /^\s*\d+[.)]\s/.test(lines[0]);
  return element(isNumbered ? "ol" : "ul", ...lines.map((line) => element("li", ...inline(line.replace(/^\s*(?:[-*+]|\d+[.)])\s+/, "")))));
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const head = element("tr", ...cells(lines[0]).map((cell) => element("th", ...inline(cell))));
  for (const cell of head.children) cell.scope = "col";
  const body = lines.slice(2).map((line) => element("tr", ...cells(line).map((cell) => element("td", ...inline(cell)))));
  return element("table", element("thead", head), element("tbody", ...body));
}

const IS_LIST = /^\s*(?:[-*+]|\d+[.)])\s+\S/;

// The blocks of a text: paragraphs, headings, lists, tables, quotes and code.
export function markdown(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks = [];
  let at = 0;
  const take = (test) => {
    const from = at;
    while (at < lines.length && test(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      at += 1;
      const code = take((next) => !next.trim().startsWith(fence[1]));
      at += 1;
      const pre = element("pre", element("code", code.join("\n")));
      pre.tabIndex = 0;
      const box = element("div", pre);
      box.className = "code";
      blocks.push(box);
    } else if (/^#{1,6}\s/.test(line)) {
      at += 1;
      const heading = element("p", element("b", ...inline(line.replace(/^#+\s+/, ""))));
      blocks.push(heading);
    } else if (IS_LIST.test(line)) {
      blocks.push(list(take((next) => IS_LIST.test(next))));
    } else if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[at + 1] ?? "")) {
      blocks.push(table(take((next) => next.includes("|"))));
    } else if (line.startsWith(">")) {
      blocks.push(element("blockquote", ...inline(take((next) => next.startsWith(">")).map((next) => next.replace(/^>\s?/, "")).join("\n"))));
    } else if (line.trim() === "") {
      at += 1;
    } else {
      const first = at;
      const paragraph = take((next) => next.trim() !== "" && (at === first || !(/^\s*(```|~~~)|^#{1,6}\s|^>/.test(next) || IS_LIST.test(next))));
      blocks.push(element("p", ...inline(paragraph.join("\n"))));
    }
  }
  return blocks;
}
