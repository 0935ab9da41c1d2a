/* Grids of the IQ1, IQ2 and IQ3 weight types: vectors of magnitudes that an index in a block stands for. Byte j of an entry is
 * coordinate j. Constants of the GGUF format; credit in docs/PROVENANCE.md. */
#ifndef GRIDS_H
#define GRIDS_H

#include <stdint.h>

extern const uint64_t be_grid_iq2xxs[256], be_grid_iq2xs[512], be_grid_iq2s[1024]; /* 8, 25 or 43 */
extern const uint32_t be_grid_iq3xxs[256];                                         /* 4, 12, … 52, 62 */
extern const uint32_t be_grid_iq3s[512];                                           /* 1, 3, … 15 */
extern const uint64_t be_grid_iq1s[2048]; /* eight times the value, plus 10 */

#endif
