-- Passwords of proxies stood in the text of channels. They are sealed when the database is opened; the mark says that this is to do.
INSERT INTO counters (name, value) VALUES ('plain_proxies', 1) ON CONFLICT (name) DO NOTHING;
