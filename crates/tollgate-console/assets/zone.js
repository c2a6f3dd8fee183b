// The time zone that the member has chosen; undefined is the browser's, which is also taken where it does not know the chosen one.
function chosen() {
  const { lang, dataset } = document.documentElement;
  if (!dataset.timeZone) return undefined;
  try {
    return new Intl.DateTimeFormat(lang, { timeZone: dataset.timeZone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

const timeZone = chosen();

// Dates as the server writes them: the day first, and a clock of 24 hours.
const { lang } = document.documentElement;

export function timeFormat(fields) {
  return new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, { ...fields, hourCycle: fields.hour && "h23", timeZone });
}

/** How far the clocks of the zone are ahead of UTC at a time: +01:00. */
export function offsetAt(at) {
  const name = timeFormat({ timeZoneName: "longOffset" }).formatToParts(at).find(({ type }) => type === "timeZoneName").value;
  return name.replace("GMT", "") || "+00:00";
}

/** The zone's name, such as Europe/Berlin. */
export const zoneName = timeFormat({}).resolvedOptions().timeZone;

const digits = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
const wall = new Intl.DateTimeFormat("en-GB", { ...digits, hourCycle: "h23", timeZone });

// What the clocks of the zone show at a time, as if they were those of UTC; in milliseconds.
function clockAt(at) {
  const of = Object.fromEntries(wall.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(of.year, of.month - 1, of.day, of.hour, of.minute, of.second);
}

/** A time as a field of a form has it: 2027-01-31T08:00. */
export function clockText(at) {
  return new Date(clockAt(at)).toISOString().slice(0, 16);
}

/** The time at which the clocks of the zone show such a text. */
export function timeOf(text) {
  const clock = Date.parse(`${text}Z`);
  if (Number.isNaN(clock)) return new Date(NaN);
  const before = (at) => clock - (clockAt(at) - at);
  // Between the two the clocks may have been changed.
  return new Date(before(before(clock)));
}
