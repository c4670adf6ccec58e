CC ?= cc
SOURCES := $(wildcard src/*.c)
OBJECTS := $(SOURCES:.c=.o)

.PHONY: all clean

all: app

app: $(OBJECTS)
	$(CC) -o $@ $^

%.o: %.c
	$(CC) -c -o $@ $<

clean:
	rm -f app $(OBJECTS)
	@echo "it's clean (now)"

ifdef DEBUG
CFLAGS += -g
endif
