#include "reduce/plan.h"
