// The parts of a browser that a sign-in needs: cookies by origin, and redirects one by one.
export class Browser {
  cookies = new Map();

  async get(url, options = {}) {
    const origin = new URL(url).origin;
    const jar = this.cookies.get(origin) ?? new Map();
    this.cookies.set(origin, jar);
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { ...options, redirect: "manual", headers: { ...options.headers, cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [pair, ...attributes] = set.split(";");
      const [name, value] = [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)];
      const gone = value === "" || attributes.some((text) => /^\s*(max-age=0|expires=thu, 01 jan 1970)/i.test(text));
      if (gone) jar.delete(name);
      else jar.set(name, value);
    }
    return response;
  }

  // Follows redirects up to an address that `stop` accepts, or to an answer that is not a redirect. Returns the last address
  // and answer.
  async follow(url, stop = () => false) {
    for (let hops = 0; hops < 20; hops += 1) {
      if (stop(url)) return { url };
      const response = await this.get(url);
      const location = response.headers.get("location");
      if (location === null) return { url, response };
      url = new URL(location, url).href;
    }
    throw new Error(`too many redirects, the last one to ${url}`);
  }
}
