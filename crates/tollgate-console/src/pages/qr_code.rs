//! QR codes (ISO/IEC 18004) in byte mode with error correction level M, up to version 20. Pages show them as SVG, without a script.

use std::fmt::Write as _;

/// Version 20 holds 666 bytes. Apps read larger ones badly.
const MAX_VERSION: usize = 20;
/// Error correction codewords of each block, by version.
const CORRECTION: [usize; MAX_VERSION] = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26];
/// Blocks, by version.
const BLOCKS: [usize; MAX_VERSION] = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16];
const MASKS: u32 = 8;
/// Light modules around the symbol, which readers need.
const QUIET_ZONE: usize = 4;
/// CSS pixels of a module.
const SCALE: usize = 4;

/// A symbol as a page draws it.
#[derive(Debug)]
pub(super) struct QrCode {
    /// Modules of a side, with the quiet zone.
    pub(super) side: usize,
    /// Pixels of a side.
    pub(super) pixels: usize,
    /// The dark modules as the data of an SVG path.
    pub(super) path: String,
}

impl QrCode {
    /// `None` for a text that is too long.
    pub(super) fn of(text: &str) -> Option<Self> {
        let symbol = symbol(text, None)?;
        let mut path = String::new();
        for y in 0..symbol.size {
            let mut x = 0;
            while x < symbol.size {
                let length = (x..symbol.size).take_while(|x| symbol.is_dark(*x, y)).count();
                if length > 0 {
                    let _ = write!(path, "M{} {}h{length}v1h-{length}z", x + QUIET_ZONE, y + QUIET_ZONE);
                }
                x += length + 1;
            }
        }
        let side = symbol.size + 2 * QUIET_ZONE;
        Some(Self { side, pixels: side * SCALE, path })
    }
}

/// The symbol with this mask, or with the mask that the standard's rules choose.
fn symbol(text: &str, mask: Option<u32>) -> Option<Symbol> {
    let version = (1..=MAX_VERSION).find(|version| text.len() <= capacity(*version))?;
    let mut plain = Symbol::with_patterns(version);
    plain.fill(&interleaved(version, &data_codewords(version, text.as_bytes())));
    match mask {
        Some(mask) => Some(plain.masked(mask)),
        None => (0..MASKS).map(|mask| plain.masked(mask)).min_by_key(Symbol::penalty),
    }
}

fn size(version: usize) -> usize {
    17 + 4 * version
}

/// Codewords of data and error correction: all modules except those of the patterns and of format and version.
fn codewords(version: usize) -> usize {
    let mut modules = (16 * version + 128) * version + 64;
    if version >= 2 {
        let count = version / 7 + 2;
        modules -= (25 * count - 10) * count - 55;
    }
    if version >= 7 {
        modules -= 36;
    }
    modules / 8
}

fn data_length(version: usize) -> usize {
    codewords(version) - CORRECTION[version - 1] * BLOCKS[version - 1]
}

/// Digits of four bits in the length that precedes the text.
fn length_digits(version: usize) -> usize {
    if version < 10 { 2 } else { 4 }
}

/// Bytes of text that a version holds. Mode and terminator are four bits each.
fn capacity(version: usize) -> usize {
    data_length(version) - length_digits(version) / 2 - 1
}

/// Mode, length, text, terminator and padding. All parts but the bytes of the text are digits of four bits.
fn data_codewords(version: usize, text: &[u8]) -> Vec<u8> {
    const BYTE_MODE: u8 = 4;
    let length = u16::try_from(text.len()).expect("no version holds more").to_be_bytes();
    let bytes = length[2 - length_digits(version) / 2..].iter().chain(text);
    let mut digits = vec![BYTE_MODE];
    digits.extend(bytes.flat_map(|byte| [byte >> 4, byte & 15]));
    digits.push(0);
    let data = digits.chunks_exact(2).map(|pair| (pair[0] << 4) | pair[1]);
    data.chain([0xec, 0x11].into_iter().cycle()).take(data_length(version)).collect()
}

/// The data in blocks with their error correction, codeword by codeword of each block.
fn interleaved(version: usize, data: &[u8]) -> Vec<u8> {
    let (count, correction) = (BLOCKS[version - 1], CORRECTION[version - 1]);
    // The last blocks have one more codeword.
    let (short, longer) = (data.len() / count, data.len() % count);
    let (first, last) = data.split_at(short * (count - longer));
    let blocks: Vec<&[u8]> = first.chunks(short).chain(last.chunks(short + 1)).collect();
    let divisor = divisor(correction);
    let corrections: Vec<Vec<u8>> = blocks.iter().map(|block| remainder(block, &divisor)).collect();
    let mut all: Vec<u8> = (0..=short).flat_map(|i| blocks.iter().filter_map(move |block| block.get(i).copied())).collect();
    all.extend((0..correction).flat_map(|i| corrections.iter().filter_map(move |block| block.get(i).copied())));
    all
}

/// The product in the field of 256 elements with the polynomial 0x11d.
fn multiply(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0, |product: u8, bit| {
        let reduced = if product & 0x80 == 0 { 0 } else { 0x1d };
        let added = if b >> bit & 1 == 0 { 0 } else { a };
        (product << 1) ^ reduced ^ added
    })
}

/// The generator polynomial of a Reed-Solomon code, from the highest power on and without its first coefficient, which is 1.
fn divisor(degree: usize) -> Vec<u8> {
    let mut coefficients = vec![0; degree];
    coefficients[degree - 1] = 1;
    let mut root = 1;
    for _ in 0..degree {
        for i in 0..degree {
            let next = coefficients.get(i + 1).copied().unwrap_or(0);
            coefficients[i] = multiply(coefficients[i], root) ^ next;
        }
        root = multiply(root, 2);
    }
    coefficients
}

/// The error correction codewords of a block.
fn remainder(data: &[u8], divisor: &[u8]) -> Vec<u8> {
    let mut remainder = vec![0; divisor.len()];
    for byte in data {
        let factor = byte ^ remainder.remove(0);
        remainder.push(0);
        for (value, coefficient) in remainder.iter_mut().zip(divisor) {
            *value ^= multiply(*coefficient, factor);
        }
    }
    remainder
}

/// A number followed by the remainder of its division by a polynomial of this degree.
fn with_remainder(number: u32, polynomial: u32, degree: u32) -> u32 {
    let step = |rest: u32, _| {
        let subtracted = if rest >> (degree - 1) & 1 == 0 { 0 } else { polynomial };
        (rest << 1) ^ subtracted
    };
    (number << degree) | (0..degree).fold(number, step)
}

/// Whether a mask inverts the module of a column and row.
fn inverts(mask: u32, x: usize, y: usize) -> bool {
    match mask {
        0 => (x + y).is_multiple_of(2),
        1 => y.is_multiple_of(2),
        2 => x.is_multiple_of(3),
        3 => (x + y).is_multiple_of(3),
        4 => (x / 3 + y / 2).is_multiple_of(2),
        5 => x * y % 2 + x * y % 3 == 0,
        6 => (x * y % 2 + x * y % 3).is_multiple_of(2),
        _ => ((x + y) % 2 + x * y % 3).is_multiple_of(2),
    }
}

#[derive(Clone, Debug)]
struct Symbol {
    size: usize,
    /// Whether each module is dark, row by row.
    dark: Vec<bool>,
    /// Whether each module belongs to a pattern or to format and version, which are not masked.
    fixed: Vec<bool>,
}

impl Symbol {
    /// The patterns of a version, without format and data.
    fn with_patterns(version: usize) -> Self {
        let size = size(version);
        let mut symbol = Self { size, dark: vec![false; size * size], fixed: vec![false; size * size] };
        for i in 0..size {
            symbol.fix(6, i, i.is_multiple_of(2));
            symbol.fix(i, 6, i.is_multiple_of(2));
        }
        for (x, y) in [(3, 3), (size - 4, 3), (3, size - 4)] {
            symbol.draw_square(x, y, 4, |distance| distance != 2 && distance != 4);
        }
        for (x, y) in alignments(version) {
            symbol.draw_square(x, y, 2, |distance| distance != 1);
        }
        symbol.draw_version(version);
        symbol.draw_format(0);
        symbol
    }

    fn is_dark(&self, x: usize, y: usize) -> bool {
        self.dark[y * self.size + x]
    }

    fn fix(&mut self, x: usize, y: usize, is_dark: bool) {
        self.dark[y * self.size + x] = is_dark;
        self.fixed[y * self.size + x] = true;
    }

    /// A square around a module, clipped to the symbol. Whether a module is dark depends on its distance from the middle.
    fn draw_square(&mut self, middle_x: usize, middle_y: usize, reach: usize, is_dark: impl Fn(usize) -> bool) {
        for y in middle_y.saturating_sub(reach)..=(middle_y + reach).min(self.size - 1) {
            for x in middle_x.saturating_sub(reach)..=(middle_x + reach).min(self.size - 1) {
                self.fix(x, y, is_dark(x.abs_diff(middle_x).max(y.abs_diff(middle_y))));
            }
        }
    }

    /// The version number, which larger versions contain twice.
    fn draw_version(&mut self, version: usize) {
        if version < 7 {
            return;
        }
        let bits = with_remainder(u32::try_from(version).expect("at most 20"), 0x1f25, 12);
        for i in 0..18 {
            let (far, near) = (self.size - 11 + i % 3, i / 3);
            self.fix(far, near, bits >> i & 1 == 1);
            self.fix(near, far, bits >> i & 1 == 1);
        }
    }

    /// Level M, which is 0, and the mask, both written twice.
    fn draw_format(&mut self, mask: u32) {
        let bits = with_remainder(mask, 0x537, 10) ^ 0x5412;
        let is_dark = |i: usize| bits >> i & 1 == 1;
        for i in 0..15 {
            let (x, y) = match i {
                0..=5 => (8, i),
                6 | 7 => (8, i + 1),
                8 => (7, 8),
                _ => (14 - i, 8),
            };
            self.fix(x, y, is_dark(i));
            let (x, y) = if i < 8 { (self.size - 1 - i, 8) } else { (8, self.size - 15 + i) };
            self.fix(x, y, is_dark(i));
        }
        self.fix(8, self.size - 8, true);
    }

    /// Writes the codewords in columns of two modules, from the right one on, upwards and downwards in turn.
    fn fill(&mut self, codewords: &[u8]) {
        let mut bits = codewords.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
        // The column of the vertical timing pattern belongs to no pair.
        let pairs = (0..self.size).rev().filter(|x| *x != 6).collect::<Vec<_>>();
        for (i, pair) in pairs.chunks_exact(2).enumerate() {
            for row in 0..self.size {
                let y = if i.is_multiple_of(2) { self.size - 1 - row } else { row };
                for x in pair {
                    let at = y * self.size + x;
                    if !self.fixed[at] {
                        // A few modules are left over.
                        self.dark[at] = bits.next().unwrap_or(false);
                    }
                }
            }
        }
    }

    fn masked(&self, mask: u32) -> Self {
        let mut masked = self.clone();
        masked.draw_format(mask);
        for y in 0..self.size {
            for x in 0..self.size {
                let at = y * self.size + x;
                masked.dark[at] ^= !self.fixed[at] && inverts(mask, x, y);
            }
        }
        masked
    }

    /// The penalty of a symbol: runs of one colour, squares, patterns similar to a finder pattern, and too much of one colour.
    fn penalty(&self) -> usize {
        let lines = |along_rows: bool| {
            (0..self.size).map(move |i| -> Vec<bool> {
                (0..self.size).map(|j| if along_rows { self.is_dark(j, i) } else { self.is_dark(i, j) }).collect()
            })
        };
        let of_lines: usize = lines(true).chain(lines(false)).map(|line| penalty_of_line(&line)).sum();
        let is_square = |x: usize, y: usize| {
            let colour = self.is_dark(x, y);
            [(x + 1, y), (x, y + 1), (x + 1, y + 1)].into_iter().all(|(x, y)| self.is_dark(x, y) == colour)
        };
        let before_last = self.size - 1;
        let squares =
            (0..before_last).flat_map(|y| (0..before_last).map(move |x| (x, y))).filter(|(x, y)| is_square(*x, *y)).count();
        let (dark, all) = (self.dark.iter().filter(|is_dark| **is_dark).count(), self.dark.len());
        let imbalance = (dark * 20).abs_diff(all * 10) / all;
        of_lines + 3 * squares + 10 * imbalance
    }
}

fn penalty_of_line(line: &[bool]) -> usize {
    const FINDER: [bool; 7] = [true, false, true, true, true, false, true];
    let runs = line.chunk_by(|a, b| a == b).map(<[bool]>::len).filter(|length| *length >= 5).map(|length| length - 2);
    // The quiet zone is light, too.
    let light = [false; QUIET_ZONE];
    let whole = [light.as_slice(), line, light.as_slice()].concat();
    let is_finder = |part: &&[bool]| part[4..11] == FINDER && (part[..4] == light || part[11..] == light);
    runs.sum::<usize>() + 40 * whole.windows(15).filter(is_finder).count()
}

/// The middles of the alignment patterns.
fn alignments(version: usize) -> Vec<(usize, usize)> {
    if version == 1 {
        return Vec::new();
    }
    let (count, last) = (version / 7 + 2, size(version) - 7);
    // Even distances counted from the last one; the remainder is between the first two.
    let distance = (last - 6).div_ceil(2 * (count - 1)) * 2;
    let mut places: Vec<usize> = (0..count - 1).map(|i| last - i * distance).collect();
    places.push(6);
    let of_finders = [(6, 6), (last, 6), (6, last)];
    let all = places.iter().flat_map(|y| places.iter().map(move |x| (*x, *y)));
    all.filter(|middle| !of_finders.contains(middle)).collect()
}

#[cfg(test)]
mod tests {
    use sha1::{Digest as _, Sha1};

    use super::*;

    fn drawn(symbol: &Symbol) -> Vec<String> {
        let row = |row: &[bool]| row.iter().map(|is_dark| if *is_dark { '#' } else { '.' }).collect();
        symbol.dark.chunks(symbol.size).map(row).collect()
    }

    /// As drawn by qrcodegen 1.8.
    #[test]
    fn small_symbol_is_that_of_another_encoder() {
        let expected = [
            "#######.....#.#######",
            "#.....#..##...#.....#",
            "#.###.#.#.....#.###.#",
            "#.###.#.##.##.#.###.#",
            "#.###.#.#.###.#.###.#",
            "#.....#.#.#.#.#.....#",
            "#######.#.#.#.#######",
            "........#####........",
            "#.#####...#.#.#####..",
            "######.#..#.##.###..#",
            "...#..####.#.#...#.#.",
            "..#..#.#.......#.##..",
            "..###.##..##.......#.",
            "........#..####.##.##",
            "#######..#..#.#...##.",
            "#.....#.#######..##..",
            "#.###.#.#.#.#..#....#",
            "#.###.#.#.#.#..###...",
            "#.###.#.#.##.#....#..",
            "#.....#.........###..",
            "#######.####.#.....#.",
        ];
        assert_eq!(drawn(&symbol("tollgate", None).unwrap()), expected);
    }

    /// The SHA-1 of the rows that qrcodegen draws, joined by line feeds, of the longest text of each version.
    #[test]
    fn every_version_and_mask_is_that_of_another_encoder() {
        let part = "otpauth://totp/tollgate%20(gateway.example.com):ann%40example.com?secret=ABCDEFGHIJKLMNOPQRSTUVWXYZ234567\
                    &issuer=tollgate&digits=6&period=30#";
        let text = part.repeat(10);
        for (version, mask, length, expected) in [
            (1, 1, 14, "8c106f06e932b06139450e80962c6afbaade7abe"),
            (2, 2, 26, "8b10b1819275cc3f50653178eda328c77f19afac"),
            (3, 3, 42, "861d8c273d0d80b8e4cece6665f836c39dca1580"),
            (4, 4, 62, "37bc906b8125bbaf7d06f6d89c209415d21d9e5d"),
            (5, 5, 84, "9ac44eb6624dbad87739c0a80d4ee826a2109dce"),
            (6, 6, 106, "ae329d12efbb9e43961ec756694e2d13df932885"),
            (7, 7, 122, "8247e38a3866797ec0ddd42a8c77d1f37b67ca58"),
            (8, 0, 152, "800fbd002c5d6de45c01ae0a64e8cf93592ae20d"),
            (9, 1, 180, "26be6b7650db8116ebe80325bd038527c1d427d7"),
            (10, 2, 213, "5e7a3548212faeaf6a79de607433c0987aed4934"),
            (11, 3, 251, "fc38992bbe6440eb786d16c3254faf23c60003a6"),
            (12, 4, 287, "0fbc2494c843ecaddc3c61d22d5887ee483c8a47"),
            (13, 5, 331, "accf089ebde3c05bed0605d149587318c666eb22"),
            (14, 6, 362, "592b1e601c5d30e355acadbd8fb759a6fb18dfb4"),
            (15, 7, 412, "53ccc54f54abcf09659d84fb0a0c9e4cbafbe439"),
            (16, 0, 450, "6c6de97e37c3ce2dd82bf287d27d324b1e100463"),
            (17, 1, 504, "fd1f468f4eea2d6c1f42f5004e1658b08c349f52"),
            (18, 2, 560, "dafbcbe1c0d798854d739df6270776693cb682d6"),
            (19, 3, 624, "c591bc73fe1d24ea2acd9508c4d6f823c97dcf3a"),
            (20, 4, 666, "31e682006166a2807fc10cfa118c2ffb0fdbbdf1"),
        ] {
            let text = &text[..length];
            let symbol = symbol(text, Some(mask)).unwrap();
            assert_eq!((symbol.size, capacity(version)), (size(version), length));
            assert_eq!(hex::encode(Sha1::digest(drawn(&symbol).join("\n"))), expected, "version {version}");
        }
        assert!(symbol(&text[..667], None).is_none());
    }

    #[test]
    fn path_has_the_dark_modules_inside_the_quiet_zone() {
        let code = QrCode::of("tollgate").unwrap();
        assert_eq!((code.side, code.pixels), (29, 116));
        assert!(code.path.starts_with("M4 4h7v1h-7zM16 4h1v1h-1zM18 4h7v1h-7z"), "{}", code.path);
        let dark: usize =
            code.path.split('h').skip(1).step_by(2).map(|part| part.split('v').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(dark, symbol("tollgate", None).unwrap().dark.iter().filter(|is_dark| **is_dark).count());
        assert!(QrCode::of(&"x".repeat(667)).is_none());
    }
}
