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
