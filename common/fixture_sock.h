/* What tests of sockets share: who connects and leaves, and whether anything stays behind. */
#ifndef FIXTURE_SOCK_H
#define FIXTURE_SOCK_H

/* Connects to the socket at path and leaves at once, which is what used to deafen listeners. */
void fixture_knock(const char *path);
/* The descriptors that are open in this process. */
unsigned fixture_descriptors(void);
/* Fails when there are still more than that many when even a busy machine would have closed them: NNG closes some of them
 * in a thread of its own. */
void fixture_descriptors_back(unsigned before);

#endif
