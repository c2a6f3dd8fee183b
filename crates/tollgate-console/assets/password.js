// How hard a new password is to guess, by its length, its kinds of characters and their variety, while it is typed. The rules are checked by
// the gateway; the form works the same without this script.
const hint = document.querySelector("[data-strength]");
const field = hint && document.getElementById(hint.dataset.strength);

// The word for a password, and its place on the meter: 0 is refused.
function level(password) {
  const { min, triedFirst } = hint.dataset;
  const length = [...password].length;
  const lower = password.toLowerCase();
  const name = field.form.querySelector('[autocomplete="username"]')?.value.toLowerCase();
  const variety = new Set(lower).size;
  if (length < Number(min)) return ["short", 0];
  if (variety === 1 || triedFirst.split(" ").includes(lower)) return ["common", 0];
  if (name && lower === name) return ["name", 0];
  const kinds = [/\p{Ll}/u, /\p{Lu}/u, /\p{N}/u, /[^\p{L}\p{N}]/u].filter((kind) => kind.test(password)).length;
  const points = (length >= 14) + (length >= 18) + (kinds >= 3);
  if (points === 0 || variety < 6) return ["weak", 1];
  return points === 1 ? ["fair", 2] : ["strong", 3];
}

function show() {
  hint.hidden = field.value === "";
  if (hint.hidden) return;
  const [word, points] = level(field.value);
  hint.querySelector("meter").value = points;
  const text = hint.querySelector("span");
  // Announced only when it changes, and not with each letter.
  if (text.textContent !== hint.dataset[word]) text.textContent = hint.dataset[word];
}

if (field) {
  field.after(hint);
  field.addEventListener("input", show);
  show();
}
