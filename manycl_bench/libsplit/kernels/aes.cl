// AES-128 (FIPS 197) of independent blocks of 16 bytes, one block a work-item; the state is a column-major 4 x 4 matrix.
// The S-box and the eleven round keys come from the host.

uchar twice(uchar a) { return (uchar)((a << 1) ^ ((a >> 7) * 0x1b)); }

kernel void aes_encrypt(global uchar *cipher, global const uchar *plain, global const uchar *sbox,
                        global const uchar *keys, int blocks)
{
    int block = get_global_id(0);
    if (block >= blocks)
        return;
    uchar s[16], t[16];
    for (int i = 0; i < 16; i++)
        s[i] = plain[16 * block + i] ^ keys[i];
    for (int round = 1; round <= 10; round++) {
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < 4; r++)
                t[4 * c + r] = sbox[s[4 * ((c + r) & 3) + r]];
        for (int c = 0; c < 4; c++) {
            uchar a = t[4 * c], b = t[4 * c + 1], d = t[4 * c + 2], e = t[4 * c + 3], all = a ^ b ^ d ^ e;
            if (round < 10) {
                t[4 * c] ^= all ^ twice(a ^ b);
                t[4 * c + 1] ^= all ^ twice(b ^ d);
                t[4 * c + 2] ^= all ^ twice(d ^ e);
                t[4 * c + 3] ^= all ^ twice(e ^ a);
            }
        }
        for (int i = 0; i < 16; i++)
            s[i] = t[i] ^ keys[16 * round + i];
    }
    for (int i = 0; i < 16; i++)
        cipher[16 * block + i] = s[i];
}
